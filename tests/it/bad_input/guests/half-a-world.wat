;; Has a life, and decides nothing.
(component
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $empty)))
