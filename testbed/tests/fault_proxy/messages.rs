//! Published messages that get lost, and subscribers that are cut off.

use testbed::{Action, Command, MessageDrop, Proxy, Times};

use crate::before_redis;
use crate::redis_client::Client;

/// A subscriber of these channels in that version of the protocol, and how pushes begin in it.
fn subscriber(proxy: &Proxy, version: &str, channels: &[&str]) -> (Client, &'static str) {
    let mut client = Client::through(proxy);
    client.say(&["HELLO", version]);
    let sign = if version == "3" { ">" } else { "*" };
    // What it says ends with its modules, of which there are none or some.
    client.say(&["ECHO", "end-of-hello"]);
    while client.line() != "end-of-hello" {}
    for (number, channel) in channels.iter().enumerate() {
        client.say(&["SUBSCRIBE", channel]);
        let length = channel.len();
        client.hears(&format!("{sign}3\r\n$9\r\nsubscribe\r\n${length}\r\n{channel}\r\n"));
        client.hears(&format!(":{}\r\n", number + 1));
    }
    (client, sign)
}

fn publish(channel: &str, text: &str) {
    // It is told how many have got it.
    Client::direct().asks(&["PUBLISH", channel, text], ":1\r\n");
}

fn message(sign: &str, channel: &str, text: &str) -> String {
    let (long, wide) = (channel.len(), text.len());
    format!("{sign}3\r\n$7\r\nmessage\r\n${long}\r\n{channel}\r\n${wide}\r\n{text}\r\n")
}

#[test]
fn messages_are_dropped_by_number_by_channel_or_all_and_the_subscriber_stays_connected() {
    for version in ["2", "3"] {
        let proxy = before_redis();
        let (a, b) = (format!("a-{version}"), format!("b-{version}"));
        let (mut client, sign) = subscriber(&proxy, version, &[&a, &b]);
        publish(&a, "0");
        client.hears(&message(sign, &a, "0"));
        proxy.drop_messages("", MessageDrop::Next(2));
        for text in ["1", "2", "3"] {
            publish(&a, text);
        }
        client.hears(&message(sign, &a, "3"));
        proxy.drop_messages(&b, MessageDrop::All);
        for text in ["4", "5"] {
            publish(&b, text);
            publish(&a, text);
        }
        client.hears(&message(sign, &a, "4"));
        client.hears(&message(sign, &a, "5"));
        proxy.drop_messages("", MessageDrop::None);
        publish(&b, "6");
        client.hears(&message(sign, &b, "6"));
        let counts = proxy.counts();
        assert_eq!((counts.messages, counts.messages_dropped), (9, 4), "version {version}");
        assert_eq!((counts.subscribers, counts.cut), (1, 0));
    }
}

#[test]
fn messages_of_a_pattern_are_messages_too() {
    let proxy = before_redis();
    let (mut client, sign) = subscriber(&proxy, "3", &[]);
    client.say(&["PSUBSCRIBE", "p:*"]);
    client.hears(&format!("{sign}3\r\n$10\r\npsubscribe\r\n$3\r\np:*\r\n:1\r\n"));
    proxy.drop_messages("p:no", MessageDrop::All);
    publish("p:no", "x");
    publish("p:yes", "y");
    client.hears(">4\r\n$8\r\npmessage\r\n$3\r\np:*\r\n$5\r\np:yes\r\n$1\r\ny\r\n");
    assert_eq!(proxy.counts().messages_dropped, 1);
}

#[test]
fn only_connections_that_have_subscribed_are_cut_off() {
    let proxy = before_redis();
    let (mut two, _) = subscriber(&proxy, "2", &["cut-2"]);
    let (mut three, _) = subscriber(&proxy, "3", &["cut-3"]);
    let mut other = Client::through(&proxy);
    assert_eq!(proxy.counts().subscribers, 2);
    proxy.cut_subscribers();
    two.sees_the_end();
    three.sees_the_end();
    other.asks(&["PING"], "+PONG\r\n");
    assert_eq!((proxy.counts().cut, proxy.counts().subscribers), (2, 0));
}

#[test]
fn an_answer_among_messages_is_found_on_a_connection_that_subscribed() {
    let proxy = before_redis();
    let (mut client, sign) = subscriber(&proxy, "3", &["among"]);
    let rule = proxy.arm(Command::redis("SET"), Action::CutAnswer, Times::Next(1));
    publish("among", "1");
    client.asks(&["ECHO", "x"], &format!("{}$1\r\nx\r\n", message(sign, "among", "1")));
    publish("among", "2");
    client.say(&["SET", "among", "1"]);
    client.hears(&message(sign, "among", "2"));
    client.sees_the_end();
    assert_eq!(rule.fired(), 1);
    assert_eq!(Client::direct().get("among").as_deref(), Some("1"));
}

#[test]
fn the_confirmation_of_a_subscription_is_its_answer_in_both_versions() {
    for version in ["2", "3"] {
        let proxy = before_redis();
        let (mut client, _) = subscriber(&proxy, version, &[]);
        let rule = proxy.arm(Command::redis("SUBSCRIBE"), Action::CutAnswer, Times::Next(1));
        client.say(&["SUBSCRIBE", "confirmed"]);
        client.sees_the_end();
        assert_eq!(rule.fired(), 1, "version {version}");
    }
}
