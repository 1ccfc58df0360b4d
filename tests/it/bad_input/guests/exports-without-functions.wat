;; Has the names of a guest, and none of its functions.
(component
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $empty))
  (export "trueup:lbaas/reconciliation@0.1.0" (instance $empty)))
