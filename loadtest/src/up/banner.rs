//! What `loadtest up` prints when everything runs: addresses, and lines to paste into a shell.

use std::fmt::Write as _;
use std::path::Path;

use loadtest_load::api::NewVoucher;
use loadtest_report::repeat::quoted;

/// Reads the token out of a line of a token file.
const TOKEN_OF_LINE: &str = r#"'s/.*"token":"\([^"]*\)".*/\1/'"#;

/// Where everything is.
pub(super) struct StartupBanner<'a> {
    pub(super) page: &'a str,
    pub(super) operators: &'a str,
    /// The replicas' addresses, `r1` first.
    pub(super) replicas: Vec<&'a str>,
    /// The servers' addresses, each after the variable that `seckill` takes it from.
    pub(super) servers: Vec<(String, String)>,
    pub(super) seckill: &'a Path,
    pub(super) admin_file: &'a Path,
    pub(super) buyers_file: &'a Path,
    /// The id of the voucher that is open, and the voucher.
    pub(super) open: (u64, &'a NewVoucher),
    pub(super) later: &'a NewVoucher,
}

impl StartupBanner<'_> {
    /// All of it, without an indent where it will be pasted.
    pub(super) fn text(&self) -> String {
        let [exports, examples] = [self.exports(), self.examples()].map(|lines| lines.join("\n"));
        format!(
            "{}\n\nPaste into a shell:\n\n{exports}\n\nThen, for example:\n\n{examples}\n",
            self.places()
        )
    }

    /// Addresses and vouchers, for a person.
    fn places(&self) -> String {
        let (open, later) = (self.open.1, self.later);
        let names = (1..).zip(&self.replicas).map(|(number, url)| format!("r{number} {url}"));
        let rows = [
            ("page", self.page.to_owned()),
            ("log in", "any phone number, say 13800000001; the page shows the code".to_owned()),
            ("open now", format!("{} ({} units)", open.title, open.stock)),
            (
                "open soon",
                format!(
                    "{} ({} units), a minute from now: {}",
                    later.title, later.stock, later.starts_at
                ),
            ),
            ("admin", format!("a token is in {}", self.admin_file.display())),
            ("operators", format!("{} (/readyz, audits)", self.operators)),
            ("replicas", names.collect::<Vec<_>>().join(", ")),
            ("metrics", "each replica has its own: /metrics at its address".to_owned()),
        ];
        let mut text = String::new();
        for (label, value) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {label:<10} {value}");
        }
        text.trim_end().to_owned()
    }

    /// A command for each variable that the examples use.
    fn exports(&self) -> Vec<String> {
        let export = |name: &str, value: &str| format!("export {name}={}", quoted(value));
        let mut lines = vec![export("BASE", self.page), export("OPERATORS", self.operators)];
        let replicas = (1..).zip(&self.replicas);
        lines.extend(replicas.map(|(number, url)| export(&format!("R{number}"), url)));
        // Without a user's name redis-cli logs in as the user "", whom Redis does not know.
        let url = |url: &str| url.replace("redis://:", "redis://default:");
        lines.extend(self.servers.iter().map(|(variable, it)| export(variable, &url(it))));
        let admin_file = quoted(&self.admin_file.display().to_string());
        lines.push(format!("export ADMIN=\"$(sed {TOKEN_OF_LINE} {admin_file})\""));
        lines
    }

    /// Commands that work once the variables are set.
    fn examples(&self) -> Vec<String> {
        let own = std::env::current_exe().unwrap_or_else(|_| "loadtest".into());
        let [loadtest, seckill, admin, buyers] =
            [own.as_path(), self.seckill, self.admin_file, self.buyers_file]
                .map(|path| quoted(&path.display().to_string()));
        let voucher = self.open.0;
        vec![
            format!("{seckill} lock run --name nightly-report -- echo under the lock"),
            "redis-cli -u \"$REDIS_URL\" ping".to_owned(),
            "cargo run -p distlock --example guard -- \"$REDIS_URL\"".to_owned(),
            "curl -s $R1/metrics".to_owned(),
            format!(
                "curl -s $BASE/api/admin/vouchers/{voucher}/stock \
                 -H \"Authorization: Bearer $ADMIN\" --json '{{\"units\":100}}'"
            ),
            format!(
                "{loadtest} run --voucher {voucher} --target $BASE --tokens {buyers} \
                 --audit-url $OPERATORS --admin-token-file {admin}"
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::vouchers;
    use super::*;

    #[test]
    fn the_lines_to_paste_set_what_the_examples_need() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let admin_file = folder.path().join("it's an admin.jsonl");
        std::fs::write(&admin_file, r#"{"user_id":"1","token":"a.b-c_d.e"}"#).expect("written");
        let [open, later] = vouchers(time::OffsetDateTime::UNIX_EPOCH);
        let server = |variable: &str, url: &str| (variable.to_owned(), url.to_owned());
        let database = "mysql://u:it's@127.0.0.1:3306/sale?ssl-mode=disabled";
        let banner = StartupBanner {
            page: "http://127.0.0.1:8080",
            operators: "http://127.0.0.1:24403",
            replicas: vec!["http://127.0.0.1:1", "http://127.0.0.1:2"],
            servers: vec![
                server("DATABASE_URL", database),
                server("REDIS_URL", "redis://:p@127.0.0.1:6379/0"),
                server("ZOOKEEPER_URL", "127.0.0.1:2181"),
            ],
            seckill: Path::new("seckill"),
            admin_file: &admin_file,
            buyers_file: Path::new("buyers.jsonl"),
            open: (1, &open),
            later: &later,
        };
        let text = banner.text();
        let pasted = text.lines().filter(|line| line.starts_with("export "));
        let pasted = pasted.collect::<Vec<_>>().join("\n");
        let names =
            "BASE OPERATORS R1 R2 DATABASE_URL REDIS_URL ZOOKEEPER_URL ADMIN".split_whitespace();
        let values: Vec<String> = names.map(|name| format!("\"${name}\"")).collect();
        // A child sees exported variables only.
        let show = format!("sh -c 'printf \"%s|\" {}'", values.join(" "));
        let shell = Command::new("sh").arg("-c").arg(format!("{pasted}\n{show}")).output();
        let output = String::from_utf8(shell.expect("a shell").stdout).expect("text");
        let expected = format!(
            "http://127.0.0.1:8080|http://127.0.0.1:24403|http://127.0.0.1:1|http://127.0.0.1:2|\
             {database}|redis://default:p@127.0.0.1:6379/0|127.0.0.1:2181|a.b-c_d.e|"
        );
        assert_eq!(output, expected, "{text}");
        assert!(text.contains("  page       http://127.0.0.1:8080\n"), "{text}");
        assert!(text.contains("r1 http://127.0.0.1:1, r2 http://127.0.0.1:2\n"), "{text}");
    }
}
