//! One suite for the guarantees of a store of `trueup:etcd/kv`, run against the store in a file and a Debian etcd that
//! the test starts; a long sequence of questions also against the store in memory. Then the behaviour of only a real
//! etcd: certificates, users, stops, members that hang.
//!
//! Needs `etcd` (`apt-get install etcd-server`).

use support::etcd as server;

mod alike;
mod proxy;
mod remote;
mod store;
mod suite;
mod watches;

/// Each case, once for each store.
macro_rules! for_each_store {
    ($($module:ident: $($case:ident),+ $(,)?;)+) => {
        mod embedded {
            $($(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                crate::etcd::$module::$case(crate::etcd::store::Store::embedded()).await;
            })+)+
        }
        mod real {
            use needs::needs;

            $($(#[needs(etcd)]
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                crate::etcd::$module::$case(crate::etcd::store::Store::etcd().await).await;
            })+)+
        }
    };
}

for_each_store! {
    suite:
        every_change_is_the_next_revision_and_counts_for_its_key,
        a_value_is_stored_where_there_is_none_and_only_once,
        a_deletion_says_whether_there_was_anything,
        a_transaction_is_made_where_every_compare_holds,
        a_transaction_that_is_not_made_changes_no_revision,
        a_transaction_has_128_operations_and_128_compares,
        a_key_is_changed_once_in_a_transaction_and_is_never_empty,
        a_request_has_an_end,
        a_prefix_is_listed_in_order_and_nothing_beside_it,
        what_is_no_text_is_told_by_its_key,
        fifty_thousand_keys_are_listed_at_one_revision,
        fifty_at_once_get_a_number_each,
        a_commit_whose_answer_is_lost_is_decided_by_reading_back;
    watches:
        a_watch_tells_each_revision_once_and_whole,
        a_watch_goes_on_after_a_cut,
        history_that_is_compacted_is_listed_again,
        nothing_is_missed_between_a_listing_and_its_watch;
}
