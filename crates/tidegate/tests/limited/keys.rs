//! Whose allowance it is: keys, prefixes, names, costs and callers.

use crate::{on_manual_clock, ready};
use std::net::{IpAddr, SocketAddr};
use tidegate::{Caller, Check, Client, Denial, Limiter, Refusal, User, limited};

type Refused = Result<(), Refusal>;

#[limited("1/day", key = goods_id, limiter = limiter)]
fn by_argument(limiter: &Limiter, goods_id: u64) -> Refused {
    Ok(())
}

#[test]
fn each_key_has_an_allowance_of_its_own() {
    let (_, limiter) = on_manual_clock();
    assert!(by_argument(&limiter, 1).is_ok());
    assert!(by_argument(&limiter, 2).is_ok());
    let refusal = by_argument(&limiter, 1).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "denied by `limited::keys::by_argument` for 1: 1/day, 0 left, free again in 24 h"
    );
}

#[limited("1/day", key = const { "everyone" }, and(limit = "2/day", key = (id, const { 7 })), limiter = limiter)]
fn by_constant(limiter: &Limiter, id: u64) -> Refused {
    Ok(())
}

#[test]
fn a_constant_on_purpose_is_one_allowance_for_all() {
    let (_, limiter) = on_manual_clock();
    assert!(by_constant(&limiter, 1).is_ok());
    assert_eq!(by_constant(&limiter, 2).unwrap_err().key(), "everyone");
    assert_eq!(limiter.get("limited::keys::by_constant/2").unwrap().peek("1+7").remaining(), 1);
}

struct Order {
    goods_id: String,
    buyer: Buyer,
}

struct Buyer {
    id: u32,
}

#[limited("1/day", key = order.goods_id, limiter = limiter)]
fn by_field(limiter: &Limiter, order: Order) -> Result<Order, Refusal> {
    Ok(order)
}

#[limited("1/day", key = order.buyer.id % 2, limiter = limiter)]
async fn by_expression(limiter: &Limiter, order: &Order) -> Refused {
    Ok(())
}

fn order(goods_id: &str, buyer: u32) -> Order {
    Order { goods_id: goods_id.into(), buyer: Buyer { id: buyer } }
}

#[test]
fn a_key_is_a_field_or_any_expression_and_moves_nothing() {
    let (_, limiter) = on_manual_clock();
    assert_eq!(by_field(&limiter, order("tea", 1)).map(|order| order.goods_id).unwrap(), "tea");
    assert_eq!(by_field(&limiter, order("tea", 2)).map(drop).unwrap_err().key(), "tea");
    assert!(ready(by_expression(&limiter, &order("tea", 1))).is_ok());
    assert!(ready(by_expression(&limiter, &order("tea", 2))).is_ok());
    assert_eq!(ready(by_expression(&limiter, &order("tea", 5))).unwrap_err().key(), "1");
}

#[limited("1/day", key = (user, goods), limiter = limiter)]
fn by_two(limiter: &Limiter, user: &str, goods: &str) -> Refused {
    Ok(())
}

#[test]
fn several_parts_are_distinct_whatever_they_hold() {
    let (_, limiter) = on_manual_clock();
    for (user, goods) in [("a", "b"), ("a+b", ""), ("", "a+b"), ("a%", "+b"), ("a%2Bb", "")] {
        assert!(by_two(&limiter, user, goods).is_ok(), "{user} {goods}");
    }
    assert_eq!(by_two(&limiter, "a", "b").unwrap_err().key(), "a+b");
    assert_eq!(by_two(&limiter, "a+b", "").unwrap_err().key(), "a%2Bb+");
}

#[limited("1/day", name = "shared", key = id, limiter = limiter)]
fn named_one(limiter: &Limiter, id: u64) -> Refused {
    Ok(())
}

#[limited("1/day", name = "shared", key = id, limiter = limiter)]
fn named_two(limiter: &Limiter, id: u64) -> Refused {
    Ok(())
}

#[limited("1/day", name = "one-allowance", prefix = "goods:", key = id, limiter = limiter)]
fn one_allowance_a(limiter: &Limiter, id: u64) -> Refused {
    Ok(())
}

#[limited("1/day", name = "one-allowance", prefix = "goods:", key = id, limiter = limiter)]
fn one_allowance_b(limiter: &Limiter, id: u64) -> Refused {
    Ok(())
}

#[test]
fn functions_that_share_a_name_share_allowances_only_with_the_same_prefix() {
    let (_, limiter) = on_manual_clock();
    assert!(named_one(&limiter, 7).is_ok());
    assert!(named_two(&limiter, 7).is_ok());
    let refusal = named_two(&limiter, 7).unwrap_err();
    assert_eq!((refusal.gate(), refusal.key()), ("shared", "limited::keys::named_two/7"));

    assert!(one_allowance_a(&limiter, 7).is_ok());
    assert_eq!(one_allowance_b(&limiter, 7).unwrap_err().key(), "goods:7");
    assert_eq!(limiter.get("one-allowance").unwrap().peek("goods:7").remaining(), 0);
}

#[limited("10/day", cost = items.len(), key = user, limiter = limiter)]
fn by_cost(limiter: &Limiter, user: &str, items: &[u8]) -> Refused {
    Ok(())
}

#[limited("10/day", cost = 4, limiter = limiter)]
fn four_each(limiter: &Limiter) -> Refused {
    Ok(())
}

#[test]
fn a_cost_is_taken_whole_or_not_at_all() {
    let (_, limiter) = on_manual_clock();
    assert!(by_cost(&limiter, "ann", &[0; 6]).is_ok());
    assert!(by_cost(&limiter, "ann", &[0; 5]).is_err());
    assert!(by_cost(&limiter, "ann", &[0; 4]).is_ok());
    let never = by_cost(&limiter, "bob", &[0; 11]).unwrap_err();
    assert_eq!(never.decision().denial(), Some(Denial::Never));

    assert!(four_each(&limiter).is_ok());
    assert!(four_each(&limiter).is_ok());
    assert_eq!(four_each(&limiter).unwrap_err().decision().remaining(), 2);
}

#[limited("1/day", by = user, limiter = limiter)]
async fn by_user(limiter: &Limiter) -> Refused {
    Ok(())
}

#[limited("1/day", by = ip, missing = refuse, limiter = limiter)]
fn by_ip(limiter: &Limiter) -> Refused {
    Ok(())
}

#[limited("1/day", by = user, key = goods_id, limiter = limiter)]
fn by_user_and_key(limiter: &Limiter, goods_id: u64) -> Refused {
    Ok(())
}

fn user(name: &str) -> Caller {
    Caller::new().user(User::new(name))
}

#[test]
fn callers_come_from_the_running_task() {
    let (_, limiter) = on_manual_clock();
    assert!(ready(user("ann").scope(by_user(&limiter))).is_ok());
    assert!(ready(user("bob").scope(by_user(&limiter))).is_ok());
    assert_eq!(ready(user("ann").scope(by_user(&limiter))).unwrap_err().key(), "user:ann");

    let ip = |text: &str| Caller::new().client(Client::new(text.parse().unwrap()));
    assert!(ip("2001:db8::1").enter(|| by_ip(&limiter)).is_ok());
    let neighbour = ip("2001:db8::2").enter(|| by_ip(&limiter)).unwrap_err();
    assert_eq!(neighbour.key(), "ip:2001:db8::/64");

    assert!(user("ann").enter(|| by_user_and_key(&limiter, 7)).is_ok());
    assert!(user("ann").enter(|| by_user_and_key(&limiter, 8)).is_ok());
    assert_eq!(user("ann").enter(|| by_user_and_key(&limiter, 7)).unwrap_err().key(), "user:ann+7");
}

#[test]
fn unknown_callers_share_one_allowance_or_are_refused() {
    let (_, limiter) = on_manual_clock();
    assert!(ready(by_user(&limiter)).is_ok());
    assert_eq!(ready(by_user(&limiter)).unwrap_err().key(), "(no user)");
    assert!(ready(user("(no user)").scope(by_user(&limiter))).is_ok(), "a name is not a way around");
    assert_eq!(ready(user("").scope(by_user(&limiter))).unwrap_err().key(), "(no user)");

    let refusal = by_ip(&limiter).unwrap_err();
    assert_eq!(refusal.decision().denial(), Some(Denial::Unidentified));
    assert_eq!(refusal.to_string(), "denied by `limited::keys::by_ip`: 1/day, who calls is not known");
}

#[limited("1/day", by = ip(address), limiter = limiter)]
fn by_given_ip(limiter: &Limiter, address: Option<SocketAddr>) -> Refused {
    Ok(())
}

#[limited("1/day", by = (user(account), ip(address)), missing = refuse, limiter = limiter)]
fn by_given_both(limiter: &Limiter, account: Option<u64>, address: IpAddr) -> Refused {
    Ok(())
}

#[test]
fn callers_come_from_arguments_where_they_are_given() {
    let (_, limiter) = on_manual_clock();
    let address = Some("203.0.113.9:4711".parse().unwrap());
    assert!(by_given_ip(&limiter, address).is_ok());
    assert_eq!(by_given_ip(&limiter, address).unwrap_err().key(), "ip:203.0.113.9");
    assert!(by_given_ip(&limiter, None).is_ok());
    assert_eq!(by_given_ip(&limiter, None).unwrap_err().key(), "(no ip)");

    let ip = "203.0.113.9".parse().unwrap();
    assert!(by_given_both(&limiter, Some(42), ip).is_ok());
    assert_eq!(by_given_both(&limiter, Some(42), ip).unwrap_err().key(), "user:42+ip:203.0.113.9");
    let nobody = by_given_both(&limiter, None, ip).unwrap_err();
    assert_eq!(nobody.decision().denial(), Some(Denial::Unidentified));
}

#[limited("1/day", by = user(account), limiter = limiter)]
fn by_borrowed_user(limiter: &Limiter, account: &Option<String>) -> Refused {
    Ok(())
}

#[test]
fn a_borrowed_option_may_be_missing_too() {
    let (_, limiter) = on_manual_clock();
    let ann = Some("ann".to_string());
    assert!(by_borrowed_user(&limiter, &ann).is_ok() && by_borrowed_user(&limiter, &None).is_ok());
    assert_eq!(by_borrowed_user(&limiter, &ann).unwrap_err().key(), "user:ann");
    assert_eq!(by_borrowed_user(&limiter, &None).unwrap_err().key(), "(no user)");
}

#[limited(
    "2/day", key = goods_id, limiter = limiter,
    and(limit = "3/day"),
    and(limit = "10/day", name = "units", prefix = "", key = goods_id, cost = units),
)]
fn three_limits(limiter: &Limiter, goods_id: u64, units: u32) -> Refused {
    Ok(())
}

#[test]
fn several_limits_are_charged_all_or_none() {
    let (_, limiter) = on_manual_clock();
    let left = |gate: &str, key: &str| limiter.get(gate).unwrap().peek(key).remaining();
    let path = "limited::keys::three_limits";
    assert!(three_limits(&limiter, 1, 5).is_ok());

    let refusal = three_limits(&limiter, 1, 6).unwrap_err();
    assert_eq!((refusal.gate(), refusal.key()), ("units", "1"));
    assert_eq!((left(path, "1"), left(&format!("{path}/2"), ""), left("units", "1")), (1, 2, 5));

    assert!(three_limits(&limiter, 1, 1).is_ok());
    assert!(three_limits(&limiter, 2, 1).is_ok());
    assert_eq!(three_limits(&limiter, 3, 1).unwrap_err().gate(), "limited::keys::three_limits/2");
    assert_eq!(left(path, "3"), 2, "nothing was spent");
}

#[test]
fn the_gates_are_ordinary_ones_that_others_can_check_and_change() {
    let (_, limiter) = on_manual_clock();
    assert!(by_argument(&limiter, 1).is_ok());
    let gate = limiter.get("limited::keys::by_argument").unwrap();
    gate.change("3/day").unwrap();
    assert!(limiter.check(&[Check::new(&gate, "1")]).is_allowed());
    assert!(by_argument(&limiter, 1).is_ok(), "code that ships a limit goes on finding its gate");
    assert!(by_argument(&limiter, 1).is_err());
}

#[limited("1/day", name = "configured", limiter = limiter)]
fn configured(limiter: &Limiter) -> Refused {
    Ok(())
}

#[test]
fn a_limit_that_is_known_when_the_program_runs_replaces_the_text() {
    let (_, limiter) = on_manual_clock();
    limiter.gate("configured", "1/day").unwrap().change("3/day").unwrap();
    assert_eq!((0..5).filter(|_| configured(&limiter).is_ok()).count(), 3);
}

#[cfg(feature = "tower")]
#[limited("1/day", by = ip(peer), limiter = limiter)]
fn by_peer(limiter: &Limiter, peer: tidegate::http::Peer) -> Refused {
    Ok(())
}

#[cfg(feature = "tower")]
#[test]
fn a_peer_of_the_listener_is_a_client() {
    let (_, limiter) = on_manual_clock();
    let peer = |text: &str| tidegate::http::Peer::new(text.parse().unwrap());
    assert!(by_peer(&limiter, peer("[::ffff:192.0.2.1]:1")).is_ok());
    assert_eq!(by_peer(&limiter, peer("192.0.2.1:2")).unwrap_err().key(), "ip:192.0.2.1");
}
