//! Pod addresses while versions of the guest are swapped: none given out twice, none lost.
