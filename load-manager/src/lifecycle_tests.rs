use evenkeel_model::{Lifecycle, NodeRecord};

use super::*;
use crate::tests::stock::{Stock, id, node, registration};

const GRACE: Millis = 500;

fn observe(stock: &Stock, lifecycles: &mut Lifecycles, now_ms: Millis) -> Output {
    lifecycles.observe(now_ms, &stock.records())
}

/// The one record written, applied to the stock as the driver would.
fn one(stock: &mut Stock, output: Output) -> (NodeRecord, Cause) {
    let [write] = <[NodeWrite; 1]>::try_from(output.writes).unwrap();
    stock.node(&write.next);
    (write.next, write.cause)
}

#[test]
fn a_registration_makes_a_broker_live_once() {
    let mut stock = Stock::default();
    stock.register("b1", 7);
    let mut lifecycles = Lifecycles::new(GRACE);
    let output = observe(&stock, &mut lifecycles, 5000);
    let next =
        NodeRecord { since_ms: 5000, first_registered_ms: 5000, ..node("b1", Lifecycle::Live, 7) };
    let write = NodeWrite { next: next.clone(), revision: 0, cause: Cause::Registered };
    assert_eq!(output, Output { writes: vec![write], wake_at_ms: None });
    stock.node(&next);
    assert_eq!(observe(&stock, &mut lifecycles, 6000), Output::default());
}

#[test]
fn a_missing_registration_takes_a_broker_down_after_the_grace_counted_from_the_election() {
    let mut stock = Stock::default();
    stock.node(&node("b1", Lifecycle::Live, 1));
    // This instance was elected just now: how long the key was gone before does not count.
    let mut lifecycles = Lifecycles::new(GRACE);
    let due = Output { writes: Vec::new(), wake_at_ms: Some(9500) };
    assert_eq!(observe(&stock, &mut lifecycles, 9000), due);
    assert_eq!(observe(&stock, &mut lifecycles, 9499), due);
    let output = observe(&stock, &mut lifecycles, 9500);
    let (written, cause) = one(&mut stock, output);
    assert_eq!(cause, Cause::Silent);
    let expected =
        NodeRecord { since_ms: 9500, last_seen_ms: Some(9000), ..node("b1", Lifecycle::Down, 1) };
    assert_eq!(written, expected);
    assert_eq!(observe(&stock, &mut lifecycles, 99_000), Output::default());
}

#[test]
fn a_registration_that_comes_back_within_the_grace_changes_nothing() {
    let mut stock = Stock::default();
    stock.node(&node("b1", Lifecycle::Live, 1));
    let mut lifecycles = Lifecycles::new(GRACE);
    assert_eq!(observe(&stock, &mut lifecycles, 1000).wake_at_ms, Some(1500));
    stock.register("b1", 1);
    assert_eq!(observe(&stock, &mut lifecycles, 1400), Output::default());
    stock.delete("/cluster/register/b1");
    // Counted anew.
    assert_eq!(observe(&stock, &mut lifecycles, 1600).wake_at_ms, Some(2100));
}

#[test]
fn a_restart_cancels_a_drain_and_a_lost_lease_does_not() {
    let mut stock = Stock::default();
    stock.node(&node("b1", Lifecycle::Draining, 1));
    let mut lifecycles = Lifecycles::new(GRACE);
    let _ = observe(&stock, &mut lifecycles, 1000);
    let output = observe(&stock, &mut lifecycles, 1500);
    let (down, _) = one(&mut stock, output);
    assert_eq!((down.lifecycle, down.drain_asked), (Lifecycle::Down, true));

    stock.register("b1", 1);
    let output = observe(&stock, &mut lifecycles, 2000);
    let (returned, cause) = one(&mut stock, output);
    let expected = (Lifecycle::Draining, Cause::Returned, false);
    assert_eq!((returned.lifecycle, cause, returned.drain_asked), expected);

    stock.register("b1", 2);
    let output = observe(&stock, &mut lifecycles, 3000);
    let (live, cause) = one(&mut stock, output);
    let expected = (Lifecycle::Live, Cause::Registered, 2);
    assert_eq!((live.lifecycle, cause, live.incarnation), expected);
    assert_eq!(live.first_registered_ms, 1000);
}

#[test]
fn a_broker_that_is_told_to_stop_is_drained() {
    let mut stock = Stock::default();
    stock.node(&node("b1", Lifecycle::Live, 1));
    stock.put("/cluster/register/b1", &registration("b1", 1, true));
    let mut lifecycles = Lifecycles::new(GRACE);
    let output = observe(&stock, &mut lifecycles, 1000);
    let (draining, cause) = one(&mut stock, output);
    assert_eq!((draining.lifecycle, cause), (Lifecycle::Draining, Cause::Stopping));
    assert_eq!(observe(&stock, &mut lifecycles, 1001), Output::default());
}

#[test]
fn a_farewell_holds_until_a_new_start_and_ends_with_the_last_sight() {
    let mut stock = Stock::default();
    stock.node(&node("b1", Lifecycle::Left, 1));
    stock.register("b1", 1);
    let mut lifecycles = Lifecycles::new(GRACE);
    assert_eq!(observe(&stock, &mut lifecycles, 1000), Output::default());
    stock.delete("/cluster/register/b1");
    let output = observe(&stock, &mut lifecycles, 2000);
    let (gone, cause) = one(&mut stock, output);
    assert_eq!(cause, Cause::Gone);
    assert_eq!((gone.lifecycle, gone.last_seen_ms), (Lifecycle::Left, Some(2000)));
    assert_eq!(observe(&stock, &mut lifecycles, 3000), Output::default());
    stock.register("b1", 2);
    let output = observe(&stock, &mut lifecycles, 4000);
    assert_eq!(one(&mut stock, output).0.lifecycle, Lifecycle::Live);
}

#[test]
fn nothing_is_decided_over_records_that_cannot_be_read() {
    let mut stock = Stock::default();
    stock.register("b1", 1);
    stock.put_bytes("/cluster/nodes/b1", b"{".to_vec());
    stock.node(&node("b2", Lifecycle::Live, 1));
    stock.put_bytes("/cluster/register/b2", b"[]".to_vec());
    let mut lifecycles = Lifecycles::new(GRACE);
    for now_ms in [1000, 9000] {
        assert_eq!(observe(&stock, &mut lifecycles, now_ms), Output::default());
    }
    assert_eq!(stock.records().nodes.revision_of(&id("b1")), 2);
}
