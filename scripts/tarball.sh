#!/usr/bin/env bash
# Packs the command as a tarball that runs where it is unpacked, on any Linux with the C library of the wheel's name or a
# later one, and tries it. It is made of the wheel's own files.
#   scripts/tarball.sh [FOLDER] [WHEEL]     where it goes (default: dist), and a wheel instead of one that is built
set -euo pipefail
[[ $# -le 2 && ${1:-} != -* ]] || { echo 'usage: scripts/tarball.sh [FOLDER] [WHEEL]' >&2; exit 2; }
out=$(realpath -m "${1:-dist}")
wheel=${2:+$(realpath "$2")}
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
if [[ -z $wheel ]]; then
  scripts/wheel.sh
  wheel=$(echo "$PWD"/build/wheel/strata-*manylinux*.whl)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m zipfile -e "$wheel" "$work/wheel"
version=${wheel##*/strata-}
packed=strata-${version%%-*}-linux-x86_64
mkdir -p "$out" "$work/$packed/bin" "$work/$packed/lib"
cd "$work/wheel/strata"
mv bin/strata "$work/$packed/bin/"
mv libstrata.so "$work/$packed/lib/"
mv share LICENSE NOTICE "$work/$packed/"
chmod +x "$work/$packed/bin/strata"

# Manual pages and completions, which the command prints.
cd "$OLDPWD"
cmake -DSTRATA="$work/$packed/bin/strata" -DOUT="$work/shell" -P cmake/StrataShellFiles.cmake
share=$work/$packed/share
mkdir -p "$share/man" "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
mv "$work/shell/man1" "$share/man/"
mv "$work/shell/bash/strata" "$share/bash-completion/completions/"
mv "$work/shell/zsh/_strata" "$share/zsh/vendor-completions/"
mv "$work/shell/fish/strata.fish" "$share/fish/vendor_completions.d/"
tar -C "$work" --owner=0 --group=0 --sort=name -czf "$out/$packed.tar.gz" "$packed"

# In another place than the one that it was packed in.
try_it() (
  mkdir "$work/try" && cd "$work/try" && tar -xzf "$out/$packed.tar.gz" && mv "$packed" 'any place'
  'any place/bin/strata' demo model.layers=1 model.hidden=64 train.steps=4 optim.warmup=2 train.eval_every=0
)
step 'the tarball in another place' --log build/tarball.log try_it
ls -l "$out/$packed.tar.gz"
