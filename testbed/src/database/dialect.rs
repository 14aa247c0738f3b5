//! What `MariaDB` and `MySQL` call differently where one server follows another.

use super::{Flavor, Replication};

/// The words of one flavor. Both understand `REPLICA` in statements; columns and variables have
/// names of their own.
pub(super) struct Dialect {
    /// A primary, in names.
    source: &'static str,
    /// A replica, in names.
    replica: &'static str,
    /// Before `TO`, in the statement that says whom to follow.
    change: &'static str,
    /// In that statement: from where it is in the history.
    by_position: &'static str,
    /// The column of the position up to which it has received.
    pub(super) received: &'static str,
    /// The position up to which it has applied.
    pub(super) applied: &'static str,
    /// Waits for a position; 0 once it is reached.
    pub(super) wait: &'static str,
    /// Empties the log, so that the history begins here.
    pub(super) reset_log: &'static str,
    /// Lines of the option file of a server with a log.
    log: &'static str,
    /// Lines of the option file of a member of a group.
    member: &'static str,
    /// The same of a pair.
    pair: &'static str,
}

/// `init-rpl-role` has a server that crashed cut its log where the engine had not committed: in a
/// semi-synchronous pair, what no replica has confirmed.
const MARIADB: Dialect = Dialect {
    source: "master",
    replica: "slave",
    change: "CHANGE MASTER",
    by_position: "MASTER_USE_GTID = slave_pos",
    received: "Gtid_IO_Pos",
    applied: "@@GLOBAL.gtid_slave_pos",
    wait: "MASTER_GTID_WAIT",
    reset_log: "RESET MASTER",
    log: "",
    member: "read_only = ON\n\
             log_slave_updates = ON\n\
             gtid_strict_mode = ON\n\
             init-rpl-role = SLAVE\n",
    pair: "",
};

/// A primary that crashed keeps all that is in its log; a clone of its successor replaces that.
const MYSQL: Dialect = Dialect {
    source: "source",
    replica: "replica",
    change: "CHANGE REPLICATION SOURCE",
    by_position: "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
    received: "Retrieved_Gtid_Set",
    applied: "@@GLOBAL.gtid_executed",
    wait: "WAIT_FOR_EXECUTED_GTID_SET",
    reset_log: "RESET BINARY LOGS AND GTIDS",
    log: "gtid_mode = ON\n\
          enforce_gtid_consistency = ON\n",
    member: "super_read_only = ON\n\
             plugin-load-add = semisync_source.so\n\
             plugin-load-add = semisync_replica.so\n\
             plugin-load-add = mysql_clone.so\n",
    // A clone asks for no older transactions, and nothing else follows the replica of a pair. So it
    // need not log, and flush, what it applies.
    pair: "log_replica_updates = OFF\n",
};

impl Dialect {
    pub(super) fn of(flavor: Flavor) -> &'static Self {
        match flavor {
            Flavor::MySql => &MYSQL,
            Flavor::MariaDb | Flavor::Any => &MARIADB,
        }
    }

    /// The part of the option file that lets others follow the server, and lets it follow others.
    /// Its number among them is its port, which is no other's.
    pub(super) fn render_log(&self, log: &str, port: u16) -> String {
        format!("log-bin = {log}\nbinlog-format = ROW\nserver-id = {port}\n{}", self.log)
    }

    /// The part of the option file for members of a group.
    pub(super) fn render_member(&self, replication: Replication, is_pair: bool) -> String {
        let Self { source, replica, member, .. } = self;
        let pair = if is_pair { self.pair } else { "" };
        let confirms = match replication {
            Replication::SemiSync => "ON",
            Replication::Async => "OFF",
        };
        format!(
            "{member}{pair}\
             sync_binlog = 1\n\
             rpl_semi_sync_{replica}_enabled = {confirms}\n\
             rpl_semi_sync_{source}_wait_point = AFTER_SYNC\n\
             rpl_semi_sync_{source}_timeout = 86400000\n"
        )
    }

    /// The variable that has a primary wait for a replica.
    pub(super) fn semi_sync_source(&self) -> String {
        format!("rpl_semi_sync_{}_enabled", self.source)
    }

    /// The status that says whether a replica confirms what it receives.
    pub(super) fn semi_sync_replica(&self) -> String {
        format!("Rpl_semi_sync_{}_status", self.replica)
    }

    /// The columns that say whether a replica receives, and whether it applies.
    pub(super) fn running(&self) -> [String; 2] {
        ["IO", "SQL"].map(|thread| format!("{}_{thread}_Running", capitalized(self.replica)))
    }

    /// The column of the seconds that a replica is behind.
    pub(super) fn seconds_behind(&self) -> String {
        format!("Seconds_Behind_{}", capitalized(self.source))
    }

    /// Says whom to follow: by address, user and password.
    pub(super) fn follow(&self, by: std::net::SocketAddr, user: &str, password: &str) -> String {
        let Self { change, by_position, .. } = self;
        let role = self.source.to_uppercase();
        format!(
            "{change} TO {role}_HOST = '{}', {role}_PORT = {}, {role}_USER = '{user}', \
             {role}_PASSWORD = '{password}', {role}_CONNECT_RETRY = 1, {by_position}",
            by.ip(),
            by.port(),
        )
    }
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// How many transactions a position has: the last part of `MariaDB`'s `0-3306-17`, and all
/// numbers of `MySQL`'s sets, as in `uuid:1-5:8, uuid:1-3`.
pub(super) fn transactions(position: &str) -> u64 {
    let number = |text: &str| text.trim().parse().unwrap_or(0);
    if !position.contains(':') {
        return position.rsplit('-').next().map_or(0, number);
    }
    let sets = position.split(',').filter_map(|set| set.split_once(':'));
    let ranges = sets.flat_map(|(_, ranges)| ranges.split(':'));
    ranges
        .map(|range| match range.split_once('-') {
            Some((first, last)) => number(last).saturating_sub(number(first)) + 1,
            None => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::transactions;

    #[test]
    fn a_position_counts_the_transactions_of_every_server() {
        for (position, count) in [
            ("", 0),
            ("0-3306-17", 17),
            ("ad92e6e6-ea7a-11f1-a500-02fc00000001:1-17", 17),
            ("ad92e6e6-ea7a-11f1-a500-02fc00000001:4", 1),
            ("ad92e6e6-ea7a-11f1:1-5:8,\nb08db41d-ea7a-11f1:1-3", 9),
        ] {
            assert_eq!(transactions(position), count, "{position}");
        }
    }
}
