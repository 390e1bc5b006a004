#!/usr/bin/env bash
# Runs a packed verification in a root that has only what a bare Debian has (bash, coreutils, grep, sed, awk,
# tar, xz) and python3. It unpacks itself, once with xz and once with python3, and verifies on the host.
#   empty_root.sh PACKED WORK [options of scripts/gpu_verify.sh]
set -euo pipefail
packed=$(realpath "$1") work=$2
shift 2
unshare --mount true 2>/dev/null || { echo 'skipped: cannot create a mount namespace for the root'; exit 0; }
rm -rf "$work"
mkdir -p "$work"/root/{usr/bin,usr/lib,tmp,proc,sys,dev,home}
root=$(realpath "$work/root")
ln -s usr/bin "$root/bin"
ln -s usr/lib "$root/lib"

libraries_of() { ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' || true; }

# install_program PATH...: copies programs to usr/bin, and the libraries that they load to their places.
install_program() {
  local path library
  for path; do
    path=$(command -v "$path")
    cp -L "$path" "$root/usr/bin/$(basename "$path")"
    libraries_of "$path" | while read -r library; do
      [[ -e $root$library ]] || install -D "$(realpath "$library")" "$root$library"
    done
  done
}
install_program bash env cat head tail tr rm mkdir mv cp ls dirname basename sha256sum realpath nproc date uname sleep grep sed awk
ln -s bash "$root/usr/bin/sh"
install_program tar xz /usr/bin/python3
stdlib=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
mkdir -p "$root$stdlib"
tar -C "$stdlib" --exclude=__pycache__ --exclude=test --exclude=dist-packages -cf - . | tar -C "$root$stdlib" -xf -
for extension in "$stdlib"/lib-dynload/*.so; do  # such as liblzma
  libraries_of "$extension" | while read -r library; do
    [[ -e $root$library ]] || install -D "$(realpath "$library")" "$root$library"
  done
done
cp "$packed" "$root/home/packed"

inside() {
  unshare --mount bash -c '
    mount --bind /proc "$1/proc" && mount --bind /sys "$1/sys" && mount --bind /dev "$1/dev" || exit 99
    exec chroot "$@"' inside "$root" /usr/bin/env -i PATH=/usr/bin HOME=/home bash -c "cd /home && $1"
}
inside 'bash packed --into by_xz --unpack-only'
mv "$root/usr/bin/xz" "$root/usr/bin/xz.away"
inside 'bash packed --into by_python --unpack-only'
mv "$root/usr/bin/xz.away" "$root/usr/bin/xz"
diff -r --no-dereference "$root/home/by_xz" "$root/home/by_python"
size=$(stat -c %s "$root/home/packed")
printf 'x' | dd of="$root/home/packed" bs=1 seek=$((size - 1000)) conv=notrunc status=none
! inside 'bash packed --into damaged --unpack-only' 2>"$work/damaged" || { echo 'a damaged file was unpacked' >&2; exit 1; }
grep -q 'is damaged' "$work/damaged"
cp "$packed" "$root/home/packed"
inside "bash packed --into by_xz --out out $*"
[[ -s $root/home/out/gpu_verify.json ]]
echo 'unpacked twice with the same result, rejected when damaged, and verified in an empty root'
