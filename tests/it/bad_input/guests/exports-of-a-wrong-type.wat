;; Takes its settings as a number.
(component
  (core module $m (func (export "init") (param i32)))
  (core instance $m (instantiate $m))
  (func $init (param "config" u32) (canon lift (core func $m "init")))
  (instance $lifecycle (export "init" (func $init)))
  (instance $empty)
  (export "trueup:guest/lifecycle@0.1.0" (instance $lifecycle))
  (export "trueup:lbaas/reconciliation@0.1.0" (instance $empty)))
