#!/bin/sh
# Fetches MySQL from Debian's unstable archive into a folder. Prints the path of a mysqld that runs
# from there, with the libraries it was built for. It changes nothing in the system, so it needs no
# root and does not conflict with MariaDB.
# Usage: deploy/fetch-mysql.sh [FOLDER]; default: target/mysql. Silent if MySQL is there already.
# Exit codes: 0 the path was printed, 2 it could not be fetched.
set -eu

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
folder=${1:-target/mysql}

die() {
    echo "fetch-mysql: $*" >&2
    exit 2
}

works() {
    "$folder/bin/mysqld" --no-defaults --version >/dev/null 2>&1
}

# An apt with one archive and no installed packages that writes into the folder only. It uses the
# system's settings for access to archives, such as a proxy.
configure_apt() {
    mkdir -p "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/etc/sources.list.d" \
        "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/log"
    : >"$apt/state/status"
    echo "deb [signed-by=$keyring] $mirror unstable main" >"$apt/etc/sources.list"
    apt-config dump Acquire >"$apt/apt.conf"
    cat >>"$apt/apt.conf" <<EOF
Dir::Etc "$apt/etc";
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Log "$apt/log";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
EOF
    APT_CONFIG=$apt/apt.conf
    export APT_CONFIG
}

# The program starts with its own dynamic linker: the system's does not find its libraries.
write_wrapper() {
    mkdir -p "$folder/bin"
    linker=$(cd "$new" && find usr -name 'ld-linux*.so.*' | head -n 1)
    libraries=$(cd "$new" && find usr/lib -name 'lib*.so.*' -exec dirname {} + | sort -u)
    [ -n "$linker" ] || die "the packages bring no dynamic linker"
    path=
    for library in $libraries; do
        path="${path:+$path:}\$root/$library"
    done
    cat >"$folder/bin/mysqld" <<EOF
#!/bin/sh
# Written by deploy/fetch-mysql.sh.
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")/root
# The caller's arguments come first, because --defaults-file must.
exec "\$root/$linker" --library-path "$path" "\$root/usr/sbin/mysqld" "\$@" \\
    --basedir="\$root/usr" --lc-messages-dir="\$root/usr/share/mysql" \\
    --character-sets-dir="\$root/usr/share/mysql/charsets" \\
    --plugin-dir="\$root/usr/lib/mysql/plugin"
EOF
    chmod 755 "$folder/bin/mysqld"
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if ! works; then
    apt=$folder/apt new=$folder/root.new
    for program in apt-get apt-config dpkg-deb; do
        command -v "$program" >/dev/null || die "$program is missing: this needs Debian's packages"
    done
    [ -f "$keyring" ] || die "$keyring is missing; install debian-archive-keyring"
    echo "Fetching MySQL from $mirror into $folder" >&2
    rm -rf "$apt" "$new" "$folder/root"
    configure_apt
    apt-get -qq update >&2 || die "cannot read the archive $mirror"
    apt-get -qq -y --download-only install mysql-server-core >&2 || die "cannot download MySQL"
    mkdir "$new"
    for package in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$new" || die "cannot unpack $package"
    done
    write_wrapper
    mv "$new" "$folder/root"
    rm -rf "$apt"
    works || die "it was fetched, but does not run: $folder/bin/mysqld --version"
fi
echo "$folder/bin/mysqld"
