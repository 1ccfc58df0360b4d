;; Asks the clock what it does not know.
(component
  (import "trueup:host/clock@0.1.0" (instance (export "weekday" (func (result u32)))))
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $empty))
  (export "trueup:lbaas/reconciliation@0.1.0" (instance $empty)))
