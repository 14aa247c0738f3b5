#!/bin/sh
# Installs the missing servers that the tests and the demo start: Redis, MariaDB (unless MariaDB or
# MySQL is there), HAProxy, ZooKeeper, etcd, NATS. Silent when nothing is missing. It starts no
# service and changes no running one.
# With --for-demo it installs Redis, MariaDB and HAProxy alone: the demo starts no others.
# With --for-bench it also installs sysbench.
# With --for-tests it also installs sysbench, Chromium with its driver, Galera for MariaDB,
# etcdctl, Python's venv for the generator of requests, mariadb-dump, and the file of MariaDB's
# engine Spider.
# With --for-interop it also installs a Java compiler and Maven, and Python's venv for the clients
# of other languages, whose Go and Node come by clients/prepare.sh. Java 17 is the oldest for these.
# With --check, before the others, it says what is missing, fails if that cannot be installed, and
# installs nothing.
# NO_INSTALL=1 refuses to install.
# Exit codes: 0 all servers are here, 2 one is missing.
set -eu

# An ordinary user's PATH may lack the folders of servers; testbed searches them too.
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/libexec
export PATH
mariadb='mariadb-server-core mariadb-client-core'
only_check=
[ "${1:-}" != --check ] || { only_check=1 && shift; }
also=${1:-}
policy=/usr/sbin/policy-rc.d
policy_mark='# Written by install-servers.sh for one installation; may be removed.'

die() {
    echo "install-servers: $*" >&2
    exit 2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

is_mysql() {
    have mysqld && ! have mariadbd
}

have_galera() {
    for folder in /usr/local/lib/galera /usr/lib/galera /usr/lib64/galera-4; do
        [ ! -f "$folder/libgalera_smm.so" ] || return 0
    done
    return 1
}

have_spider() {
    for folder in /usr/local/lib/mysql/plugin /usr/lib/mysql/plugin /usr/lib64/mysql/plugin; do
        [ ! -f "$folder/ha_spider.so" ] || return 0
    done
    return 1
}

# The package mariadb-plugin-spider brings a server with its service, so only its file is taken. It
# fits servers of the same series.
install_spider() {
    folder=$(mktemp -d)
    (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$spider" &&
        dpkg-deb -x "$spider"_*.deb .) ||
        { rm -rf "$folder" && return 1; }
    as_root install -D -m 644 "$folder/usr/lib/mysql/plugin/ha_spider.so" \
        /usr/local/lib/mysql/plugin/ha_spider.so
    rm -rf "$folder"
}

need_spider() {
    spider=mariadb-plugin-spider
    missing="${missing:+$missing, }MariaDB's engine Spider"
}

have_browser() {
    have chromedriver && { have chromium-headless-shell || have chromium || have google-chrome; }
}

# Debian's python3 has venv, and not the pip that it installs.
have_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}

have_jar() {
    [ -f "/usr/local/share/java/$1.jar" ] || [ -f "/usr/share/java/$1.jar" ]
}

# `java` or `javac` from 17 on. `-version` says `openjdk version "17.0.15"`, and `javac 17.0.15`.
need_java() {
    version=$("$1" -version 2>&1 |
        sed -nE 's/^(javac|[a-z]+ version) "?([0-9][^" ]*).*/\2/p' | head -n 1)
    [ "${version%%[!0-9]*}" -ge 17 ] 2>/dev/null ||
        need "$2 (17 or later${version:+; $(command -v "$1") is $version})" "$3"
}

# Sets `missing` (to print), `packages` (for apt) and `spider` (the package with its file); all are
# empty when every server is here.
look() {
    missing= packages= spider=
    # The package redis-server brings a service. Its program is also in redis-tools, under the
    # name redis-check-rdb.
    have redis-server || have redis-check-rdb || need "a Redis server" "redis-tools"
    # mariadb-install-db calls my_print_defaults, which is in the client's package.
    if have mariadbd; then
        have mariadb-install-db && have my_print_defaults ||
            need "mariadb-install-db" "$mariadb"
    else
        have mysqld || need "a MariaDB or MySQL server" "$mariadb"
    fi
    have haproxy || need "HAProxy" "haproxy"
    [ "$also" != --for-demo ] || return 0
    # The package zookeeperd brings a service; this one brings the server's jar alone.
    have java || need "Java" "default-jre-headless"
    have_jar zookeeper || need "ZooKeeper" "libzookeeper-java"
    # The package etcd-server brings a service.
    have etcd || need "etcd" "etcd-server"
    # The package brings a service.
    have nats-server || need "NATS" "nats-server"
    # Makes the certificate of a Redis that speaks TLS.
    have openssl || need "openssl" "openssl"
    [ "$also" != --for-tests ] || have_browser ||
        need "Chromium and its driver" "chromium-headless-shell chromium-driver"
    [ "$also" != --for-tests ] || have_galera || need "Galera" "galera-4"
    [ "$also" != --for-tests ] || have_spider || need_spider
    # Copies the rows of a shard. Clients of MySQL and of MariaDB exclude each other.
    [ "$also" != --for-tests ] || have mariadb-dump || is_mysql ||
        need "mariadb-dump" "mariadb-client"
    [ "$also" != --for-tests ] || have etcdctl || need "etcdctl" "etcd-client"
    [ "$also" != --for-tests ] || have_venv || need "Python's venv" "python3-venv"
    case $also in
        --for-interop)
            ! have java || need_java java "Java" "default-jre-headless"
            need_java javac "a Java compiler" "default-jdk-headless"
            have mvn || need "Maven" "maven"
            have_venv || need "Python's venv" "python3-venv"
            ;;
        ?*) have sysbench || need "sysbench" "sysbench" ;;
    esac
}

need() {
    missing="${missing:+$missing, }$1"
    packages="${packages:+$packages }$2"
}

# The package haproxy starts a service. Debian's own switch against that is a policy-rc.d that
# exits with 101.
forbid_service_starts() {
    if [ -e "$policy" ] && ! grep -qxF "$policy_mark" "$policy"; then
        answer=0
        "$policy" haproxy start >/dev/null 2>&1 || answer=$?
        [ "$answer" = 101 ] ||
            die "$policy allows services to start (it answers $answer); install by hand: $packages"
        return
    fi
    trap 'as_root rm -f "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' HUP TERM
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# NEEDRESTART_SUSPEND: Ubuntu would otherwise restart services whose libraries were renewed.
apt_get() {
    as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -o DPkg::Lock::Timeout=120 "$@"
}

# --no-remove: fail rather than remove a conflicting package.
install_packages() {
    # shellcheck disable=SC2086  # a list of words
    apt_get "$@" install --no-install-recommends --no-remove $packages
}

# The number of packages and their sizes; nothing if apt does not know all of them.
print_sizes() {
    install_packages --assume-no 2>/dev/null |
        sed -nE '/newly installed|^Need to get|^After this/s/^/  apt: /p'
}

install_missing_packages() {
    forbid_service_starts
    echo "Installing with apt: $packages"
    haproxy_is_new=1 etcd_is_new=1 nats_is_new=1
    have haproxy && haproxy_is_new=
    have etcd && etcd_is_new=
    have nats-server && nats_is_new=
    # shellcheck disable=SC2086  # a list of words
    apt-cache show $packages >/dev/null 2>&1 || apt_get -qq update
    print_sizes
    install_packages -qy || { apt_get -qq update && install_packages -qy; } ||
        die "apt could not install: $packages"
    # The services must not start with the machine either.
    [ -z "$haproxy_is_new" ] || as_root update-rc.d haproxy disable >/dev/null 2>&1 || true
    [ -z "$etcd_is_new" ] || as_root update-rc.d etcd disable >/dev/null 2>&1 || true
    # It has a unit of systemd alone.
    [ -z "$nats_is_new" ] || as_root systemctl disable nats-server >/dev/null 2>&1 || true
}

look
[ -n "$missing" ] || exit 0
lacking="missing: $missing" by_hand="${packages:+$packages }$spider"
[ -z "${NO_INSTALL:-}" ] || die "$lacking; NO_INSTALL is set, so install by hand: $by_hand"
have apt-get || die "$lacking; there is no apt, so install by hand what Debian calls: $by_hand"
[ "$(id -u)" = 0 ] || have sudo || die "$lacking; as root, install: $by_hand"
as_root true || die "$lacking; as root, install: $by_hand"

[ -z "$only_check" ] || { echo "$lacking; installed now, with apt" && exit 0; }

[ -z "$packages" ] || install_missing_packages
[ -z "$spider" ] || install_spider || { apt_get -qq update && install_spider; } ||
    die "apt could not download: $spider"
look
[ -z "$missing" ] || die "still missing after apt: $missing"
