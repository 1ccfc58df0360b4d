;; A guest that does nothing, so that what is left is the boundary.
;;
;; Its memory is handed out from the front and taken back at each `listed` and `taken`: the cheapest allocator there is.
(component
  (import "trueup:host/clock@0.1.0" (instance $clock
    (export "now-ms" (func (result u64)))))
  (import "trueup:lbaas/api@0.1.0" (instance $api
    (type $mode-cases (enum "tcp" "http"))
    (export "mode" (type $mode (eq $mode-cases)))
    (type $state-cases (enum "ok" "pending" "failed" "updating"))
    (export "state" (type $state (eq $state-cases)))
    (type $backend-fields
      (record (field "name" string) (field "load-balancer" string) (field "mode" $mode) (field "health-check" string)))
    (export "backend" (type $backend (eq $backend-fields)))
    (type $frontend-fields
      (record (field "name" string) (field "load-balancer" string) (field "mode" $mode) (field "default-backend" string)))
    (export "frontend" (type $frontend (eq $frontend-fields)))
    (type $bind-fields
      (record (field "name" string) (field "frontend" string) (field "address" string) (field "port" u16)))
    (export "bind" (type $bind (eq $bind-fields)))
    (type $server-fields
      (record (field "name" string) (field "backend" string) (field "ip" string) (field "port" u16) (field "check" string)))
    (export "server" (type $server (eq $server-fields)))
    (type $spec-cases
      (variant (case "backend" $backend) (case "frontend" $frontend) (case "bind" $bind) (case "server" $server)))
    (export "spec" (type $spec (eq $spec-cases)))
    (type $object-fields (record (field "identifier" string) (field "state" $state) (field "spec" $spec)))
    (export "object" (type $object (eq $object-fields)))
    (type $error-cases
      (variant
        (case "not-found")
        (case "rate-limited" (option u64))
        (case "unauthorized")
        (case "refused" (tuple u16 string))
        (case "unavailable" string)
        (case "access-denied" string)))
    (export "error" (type $error (eq $error-cases)))
    (export "list-tagged" (func (param "tag" string) (result (result (list $object) (error $error)))))))
  (import "trueup:neg/types@0.1.0" (instance $neg
    (type $location-fields (record (field "zone" string) (field "subnet" string)))
    (export "location" (type $location (eq $location-fields)))
    (type $endpoint-fields
      (record (field "ip" string) (field "ipv6" string) (field "port" string) (field "node" string)))
    (export "endpoint" (type $endpoint (eq $endpoint-fields)))
    (type $group-fields (record (field "location" $location) (field "endpoints" (list $endpoint))))
    (export "endpoint-group" (type $group (eq $group-fields)))))
  (alias export $neg "endpoint-group" (type $group))

  (core module $memory
    ;; 16 MiB at first: a list of 10,300 objects needs 3. Sets of 300,000 endpoints need 30.
    (memory (export "memory") 256)
    ;; The first kibibyte is for what imports answer.
    (global $next (export "next") (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      ;; Nothing that was handed out ever grows: hosts know how long a text is.
      (if (local.get $old) (then unreachable))
      (local.set $at
        (i32.and
          (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
          (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      ;; By 16 MiB at a time, or by as many pages as are asked for.
      (if (i32.gt_u (global.get $next) (i32.shl (memory.size) (i32.const 16)))
        (then
          (if (i32.eq
                (memory.grow (i32.add (i32.const 256) (i32.shr_u (local.get $size) (i32.const 16))))
                (i32.const -1))
            (then unreachable))))
      (local.get $at)))
  (core instance $memory (instantiate $memory))

  (core func $now-ms (canon lower (func $clock "now-ms")))
  (core func $list-tagged
    (canon lower (func $api "list-tagged") (memory $memory "memory") (realloc (func $memory "realloc"))))
  (core module $probe
    (import "host" "memory" (memory 256))
    (import "host" "next" (global $next (mut i32)))
    (import "host" "now-ms" (func $now-ms (result i64)))
    (import "host" "list-tagged" (func $list-tagged (param i32 i32 i32)))
    (func (export "empty"))
    (func (export "ask") (param $times i32) (result i64)
      (local $last i64)
      (block $done
        (loop $next-time
          (br_if $done (i32.eqz (local.get $times)))
          (local.set $last (call $now-ms))
          (local.set $times (i32.sub (local.get $times) (i32.const 1)))
          (br $next-time)))
      (local.get $last))
    (func (export "listed") (param $tag i32) (param $bytes i32) (result i32)
      ;; The host has read the tag before it asks for room for the answer.
      (global.set $next (i32.const 1024))
      (call $list-tagged (local.get $tag) (local.get $bytes) (i32.const 0))
      (if (i32.load8_u (i32.const 0)) (then unreachable))
      ;; Behind the discriminant, which an error of 8 bytes' alignment pushes away: pointer and length.
      (i32.load (i32.const 12)))
    (func (export "taken") (param i32) (param $add i32) (param i32) (param $remove i32) (param i32) (param $committed i32) (param i32)
      (result i32)
      ;; The host gave the arguments room before this call; the next one's are put in their place.
      (global.set $next (i32.const 1024))
      (i32.add (local.get $add) (i32.add (local.get $remove) (local.get $committed)))))
  (core instance $probe (instantiate $probe
    (with "host" (instance
      (export "memory" (memory $memory "memory"))
      (export "next" (global $memory "next"))
      (export "now-ms" (func $now-ms))
      (export "list-tagged" (func $list-tagged))))))

  (func (export "empty") (canon lift (core func $probe "empty")))
  (func (export "ask") (param "times" u32) (result u64) (canon lift (core func $probe "ask")))
  (func (export "listed") (param "tag" string) (result u32)
    (canon lift (core func $probe "listed") (memory $memory "memory") (realloc (func $memory "realloc"))))
  (func (export "taken")
    (param "add" (list $group)) (param "remove" (list $group)) (param "committed" (list $group)) (param "in-error-state" bool)
    (result u32)
    (canon lift (core func $probe "taken") (memory $memory "memory") (realloc (func $memory "realloc")))))
