#!/bin/sh
# The tests of namespaces need bubblewrap. Where it may be installed it is; where not, that is said, and those tests are
# skipped with that reason.
command -v bwrap >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "setup: installing bubblewrap, for the tests of namespaces"
  install="apt-get install --quiet --quiet --yes --no-install-recommends bubblewrap"
  timeout 60 $install >/dev/null 2>&1 && exit 0
  timeout 60 apt-get --quiet --quiet update >/dev/null 2>&1 && timeout 60 $install >/dev/null 2>&1 && exit 0
fi
echo "setup: bubblewrap is not here and cannot be installed: tests of namespaces are skipped"
exit 0
