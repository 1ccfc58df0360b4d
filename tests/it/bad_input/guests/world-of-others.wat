;; A command, not a guest.
(component
  (instance $empty)
  (export "wasi:cli/run@0.2.0" (instance $empty)))
