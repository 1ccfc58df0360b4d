//! Capabilities against real counterparts: servers, disks and kernels.

#![cfg(test)]

mod checkpoint;
mod cri;
mod nftables;
