;; Shares its memory between threads, which a host that can replay does not have.
(component (core module (memory 1 1 shared)))
