//! The names of all metrics.

/// Transactions that the packet filter accepted.
pub(crate) const TRANSACTIONS: &str = "nftables_transactions_total";
