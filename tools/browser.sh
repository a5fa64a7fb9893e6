#!/bin/sh
# The tests of the dashboard drive a real Chromium. Where it may be installed it is; where not, that is said, and those
# tests are skipped with that reason. The headless shell is the same browser without a desktop's machinery.
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "setup: installing Chromium, for the tests of the dashboard"
  install="apt-get install --quiet --quiet --yes --no-install-recommends"
  installed() { timeout 300 $install chromium-headless-shell >/dev/null 2>&1 || timeout 300 $install chromium >/dev/null 2>&1; }
  installed && exit 0
  timeout 120 apt-get --quiet --quiet update >/dev/null 2>&1 && installed && exit 0
fi
echo "setup: there is no Chromium here and it cannot be installed: tests of the dashboard in a browser are skipped"
exit 0
