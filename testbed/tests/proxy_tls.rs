//! The proxy that ships where TLS ends at it, and behind a proxy at which TLS ends.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use support::{request, send, stand_in};
use testbed::{Bed, Haproxy, HaproxyOptions, Replica};

const HSTS: &str = "strict-transport-security: max-age=31536000";

fn proxy(bed: &Bed, bind_options: &str) -> (Haproxy, Replica) {
    let replica = bed.replica(stand_in("replica")).unwrap();
    let env = vec![("SECKILL_PUBLIC_BIND_OPTIONS".to_owned(), bind_options.to_owned())];
    let options = HaproxyOptions { env, ..HaproxyOptions::default() };
    (bed.haproxy_with(&options, &[replica.addr()]).unwrap(), replica)
}

fn openssl(args: &[&str], input: &str) -> String {
    let mut child = Command::new("openssl")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    child.stdin.as_mut().expect("its stdin").write_all(input.as_bytes()).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn over_tls_every_answer_has_strict_transport_security() {
    let bed = Bed::start().unwrap();
    let file = |name: &str| bed.dir().join(name).to_str().expect("a path in UTF-8").to_owned();
    let (key, certificate) = (file("site-key.pem"), file("site-certificate.pem"));
    let fixed = "req -x509 -days 1 -newkey rsa:2048 -nodes -subj /CN=localhost";
    let mut args: Vec<_> = fixed.split(' ').collect();
    args.extend(["-keyout", &key, "-out", &certificate]);
    openssl(&args, "");
    let both = [&key, &certificate].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(file("site.pem"), both).unwrap();

    let (proxy, _replica) = proxy(&bed, &format!("ssl crt {}", file("site.pem")));
    let address = proxy.url().strip_prefix("http://").unwrap();
    // One of a replica, and one of the proxy's own.
    for (path, status) in [("/livez", "200"), ("/metrics", "404")] {
        let get = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let verified = ["-verify_return_error", "-CAfile", &certificate];
        let args = [&["s_client", "-quiet", "-connect", address][..], &verified].concat();
        let answer = openssl(&args, &get).to_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{answer}");
        assert!(answer.contains(HSTS), "{answer}");
    }
    // Of two protocols the proxy takes HTTP/1: a connection carries one request at a time.
    let offer = ["s_client", "-connect", address, "-alpn", "h2,http/1.1"];
    let chosen = openssl(&offer, "Q\n");
    assert!(chosen.contains("ALPN protocol: http/1.1"), "{chosen}");
    // Without TLS the header has no meaning and is not sent.
    let plain = request(proxy.operator_url(), "/livez", "");
    assert!(plain.status == 200 && !plain.head.contains("strict-transport"), "{plain:?}");
}

#[test]
fn behind_a_tls_proxy_the_client_is_the_one_that_it_names_in_the_proxy_protocol() {
    let bed = Bed::start().unwrap();
    let (proxy, _replica) = proxy(&bed, "accept-proxy");
    let address = proxy.url().strip_prefix("http://").unwrap();
    let get = "GET /livez HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 9.9.9.9\r\n\
               Connection: close\r\n\r\n";
    let named = format!("PROXY TCP4 192.0.2.7 192.0.2.1 5000 443\r\n{get}");
    let answer = send(address, &named).to_lowercase();
    assert!(answer.contains("x-forwarded-for: 192.0.2.7\r\n"), "{answer}");
    assert!(!answer.contains("9.9.9.9") && !answer.contains("strict-transport"), "{answer}");
}
