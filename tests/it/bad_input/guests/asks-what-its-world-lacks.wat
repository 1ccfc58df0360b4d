;; Asks for timers, which no load balancer needs.
(component
  (import "trueup:host/timers@0.1.0" (instance))
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $empty))
  (export "trueup:lbaas/reconciliation@0.1.0" (instance $empty)))
