;; Of a version of the contract that is not there yet.
(component
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $empty))
  (export "trueup:lbaas/reconciliation@0.2.0" (instance $empty)))
