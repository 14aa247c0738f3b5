# What fetch-mysql.sh and fetch-valkey.sh have in common. They set:
# - name: of the script; title: of the program, for people
# - mirror, suite: of the archive; folder: where the program goes
# - package; program: its path in the package; arguments: the last ones of its call
# and define `works`. Then `fetch_program` prints the path of a program that runs from the folder,
# with the libraries it was built for. Nothing in the system changes.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

die() {
    echo "$name: $*" >&2
    exit 2
}

# An apt with one archive and no installed packages that writes into the folder only. It uses the
# system's settings for access to archives, such as a proxy.
configure_apt() {
    mkdir -p "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/etc/sources.list.d" \
        "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/log"
    : >"$apt/state/status"
    echo "deb [signed-by=$keyring] $mirror $suite main" >"$apt/etc/sources.list"
    apt-config dump Acquire >"$apt/apt.conf"
    cat >>"$apt/apt.conf" <<EOF_APT
Dir::Etc "$apt/etc";
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Log "$apt/log";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
EOF_APT
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
    cat >"$wrapper" <<EOF_WRAPPER
#!/bin/sh
# Written by deploy/$name.sh.
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")/root
# The caller's arguments come first, because --defaults-file must.
exec "\$root/$linker" --library-path "$path" "\$root/$program" "\$@" $arguments
EOF_WRAPPER
    chmod 755 "$wrapper"
}

fetch_program() {
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    wrapper=$folder/bin/$(basename "$program")
    if ! works; then
        apt=$folder/apt new=$folder/root.new
        for needed in apt-get apt-config dpkg-deb; do
            command -v "$needed" >/dev/null ||
                die "$needed is missing: this needs Debian's packages"
        done
        [ -f "$keyring" ] || die "$keyring is missing; install debian-archive-keyring"
        echo "Fetching $title from $mirror into $folder" >&2
        rm -rf "$apt" "$new" "$folder/root"
        configure_apt
        apt-get -qq update >&2 || die "cannot read the archive $mirror"
        apt-get -qq -y --download-only install "$package" >&2 || die "cannot download $title"
        mkdir "$new"
        for file in "$apt"/cache/archives/*.deb; do
            dpkg-deb -x "$file" "$new" || die "cannot unpack $file"
        done
        write_wrapper
        mv "$new" "$folder/root"
        rm -rf "$apt"
        works || die "it was fetched, but does not run: $wrapper --version"
    fi
    echo "$wrapper"
}
