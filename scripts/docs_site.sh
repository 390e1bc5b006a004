#!/usr/bin/env bash
# Builds the documentation as a site of static pages, from the Markdown files in docs/.
#   scripts/docs_site.sh OUT           writes the pages to the folder OUT; open OUT/index.html, no server is needed
#   scripts/docs_site.sh --serve OUT   then serves them at http://localhost:8000, until Ctrl-C
# mkdocs-material comes from PyPI into build/docs_site; neither the product nor its tests need it.
set -euo pipefail

root=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
serve=0
if [[ ${1:-} == --serve ]]; then serve=1; shift; fi
if (( $# != 1 )) || [[ $1 == -* ]]; then echo 'usage: scripts/docs_site.sh [--serve] OUT' >&2; exit 2; fi
out=$(realpath -m "$1")
fail() { printf 'docs_site: %s\n' "$*" >&2; exit 1; }
# mkdocs empties the folder: it must be one that it has made, or none.
[[ ! -e $out || -e $out/search/search_index.js || -z $(ls -A "$out") ]] || fail "$out exists and is not a site; name another folder"

environment=$root/build/docs_site
requirements=$root/scripts/docs_site/requirements.txt
if ! cmp -s "$requirements" "$environment/installed"; then
  command -v python3 >/dev/null || fail 'python3 is missing'
  rm -rf "$environment"
  python3 -m venv "$environment" || fail 'python3 has no venv: on Debian, apt-get install python3-venv'
  "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" || fail 'pip could not install mkdocs-material from PyPI'
  cp "$requirements" "$environment/installed"  # last, so that an interrupted installation is repeated
fi
# The variable: Material for MkDocs prints advertisements without it. A broken link is a warning, and so an error here.
cd "$root"
if ! NO_MKDOCS_2_WARNING=1 "$environment/bin/mkdocs" build --strict --site-dir "$out" 2>"$environment/log"; then
  grep -v '^INFO' "$environment/log" >&2
  exit 1
fi
echo "docs_site: $(find "$out" -name '*.html' | wc -l) pages in $out"
if (( serve )); then exec "$environment/bin/python" -m http.server --directory "$out" --bind 127.0.0.1 8000; fi
