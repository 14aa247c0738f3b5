//! `seckill token revoke`.

use seckill::domain::Role;

use super::{env, run};
use crate::support::{Place, Service, eventually, token};

#[tokio::test(flavor = "multi_thread")]
async fn token_revoke_ends_the_tokens_of_a_user_a_phone_or_all_and_says_so() {
    let service = Service::start(&[]).await;
    let place: &Place = &service.place;
    let revoke = |flags: &[&str]| run(&[&["token", "revoke"], flags].concat(), &env(place)[..1]);
    let refused = async |user: u64, token: &str| {
        let what = format!("the token of user {user} is refused");
        eventually(&what, async || service.get("/api/orders", token).await.status == 401).await;
    };
    let (nine, seven, eight) =
        (token(9, Role::Admin), token(7, Role::Buyer), token(8, Role::Buyer));
    let said = revoke(&["--user", "7"]).fine();
    assert_eq!(said, "tokens of user 7 are revoked; replicas refuse them within a second\n");
    refused(7, &seven).await;
    service.get("/api/orders", &nine).await.expect(200);
    let said = revoke(&["--phone", "+8613800009009"]).fine();
    assert_eq!(said, "tokens of user 9 are revoked; replicas refuse them within a second\n");
    refused(9, &nine).await;
    service.get("/api/orders", &eight).await.expect(200);
    let said = revoke(&["--all"]).fine();
    assert_eq!(said, "tokens of all users are revoked; replicas refuse them within a second\n");
    refused(8, &eight).await;

    let unknown = revoke(&["--phone", "+8613800009777"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""), "{unknown:?}");
    assert!(unknown.stderr.contains("no user has the phone +86"), "{unknown:?}");
    revoke(&[]).refused(Some(place), "--user");
    revoke(&["--user", "7", "--all"]).refused(Some(place), "--all");
    revoke(&["--user", "x"]).refused(Some(place), "--user");
    let dead = [("DATABASE_URL", "mysql://u:hush-1@127.0.0.1:1/d")];
    run(&["token", "revoke", "--all"], &dead).refused(None, "cannot connect to DATABASE_URL");
}
