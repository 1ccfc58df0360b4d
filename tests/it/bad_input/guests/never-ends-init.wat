;; Never gets through its settings.
(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "trueup:guest/lifecycle@0.1.0#init") (param i32 i32) (result i32)
    (loop $on (br $on)) unreachable)
  (func (export "trueup:guest/lifecycle@0.1.0#snapshot") (result i32) unreachable)
  (func (export "trueup:guest/lifecycle@0.1.0#restore") (param i32 i32) (result i32) unreachable)
  (func (export "trueup:lbaas/reconciliation@0.1.0#reconcile-check")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
  (func (export "trueup:lbaas/reconciliation@0.1.0#reconcile")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)
  (func (export "trueup:lbaas/reconciliation@0.1.0#status")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable))
