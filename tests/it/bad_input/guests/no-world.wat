;; A component that answers nothing.
(component)
