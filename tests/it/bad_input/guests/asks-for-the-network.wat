;; Wants to speak HTTP by itself.
(component
  (import "wasi:http/outgoing-handler@0.2.0" (instance))
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $empty))
  (export "trueup:lbaas/reconciliation@0.1.0" (instance $empty)))
