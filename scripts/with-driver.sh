#!/bin/bash
# with-driver.sh DRIVER PROGRAM ARGS...    runs PROGRAM on one software Vulkan driver, fetched on first use
#
#   lavapipe      the system's Mesa (through apt, as root, where it is missing)
#   lavapipe-new  Mesa of Debian unstable, which has cooperative matrices. It is unpacked with its own C library into a
#                 private folder, and PROGRAM runs through that library's loader: ELF programs only, and what PROGRAM
#                 starts itself does not inherit the driver.
#   swiftshader   the driver inside Debian's chromium-common: subgroups of 4, no f16, few bindings; it stands for a weak
#                 device
#
# Also a cargo runner: CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="scripts/with-driver.sh swiftshader" cargo test
# Drivers are kept in ${WEFT_DRIVERS:-$HOME/.cache/weft-drivers}. Needs Debian's apt; root for lavapipe only.
set -euo pipefail

usage="usage: with-driver.sh lavapipe|lavapipe-new|swiftshader PROGRAM ARGS..."
driver=${1:?$usage}
shift
[ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }
cache=${WEFT_DRIVERS:-$HOME/.cache/weft-drivers}
mkdir -p "$cache"
multiarch=$(uname -m)-linux-gnu

fail() {
  echo "with-driver: $*" >&2
  exit 2
}

# One fetch at a time: test programs start together.
lock() {
  exec 8> "$cache/.lock"
  flock 8
}
unlock() {
  exec 8>&-
}

# use_driver LIBRARY: the Vulkan loader sees this driver and no other.
use_driver() {
  local manifest=$cache/$driver.json
  printf '{"file_format_version":"1.0.0","ICD":{"library_path":"%s","api_version":"1.3.0"}}\n' "$1" > "$manifest.$$"
  mv "$manifest.$$" "$manifest"
  export VK_DRIVER_FILES=$manifest VK_ICD_FILENAMES=$manifest
}

# fetch_suite ROOT SUITE PACKAGE...: unpacks packages of another Debian suite and all they depend on under ROOT. apt gets
# a state of its own in which nothing is installed, so that the closure includes the C library.
fetch_suite() {
  local root=$1 suite=$2 state=$1.apt mirror directory archive
  shift 2
  command -v apt-get > /dev/null || fail "needs apt"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 2> /dev/null | grep -v -i security | head -1)
  [ -n "$mirror" ] || fail "apt knows no mirror; run apt-get update first"
  rm -rf "$root" "$state"
  mkdir -p "$state/lists/partial" "$state/archives/partial" "$root"/usr/{bin,sbin,lib,lib64}
  for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$root/$directory"; done
  : > "$state/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$state/sources"
  cat > "$state/apt.conf" << CONF
Dir::Etc::sourcelist "$state/sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$state/lists";
Dir::State::status "$state/status";
Dir::Cache "$state";
Dir::Cache::archives "archives";
Debug::NoLocking "1";
APT::Get::Download-Only "1";
APT::Sandbox::User "root";
CONF
  APT_CONFIG=$state/apt.conf apt-get -qq update >&2
  APT_CONFIG=$state/apt.conf apt-get -qq install -y --no-install-recommends --download-only "$@" >&2
  for archive in "$state"/archives/*.deb; do
    dpkg --fsys-tarfile "$archive" | tar -x -C "$root" --keep-directory-symlink
  done
  rm -rf "$state"
  touch "$root/.complete"
}

run_on_lavapipe() {
  lock
  # Not `grep -q`: its early end would be a failure of ldconfig, under pipefail.
  if ! ldconfig -p | grep libvulkan.so.1 > /dev/null || [ ! -e "/usr/lib/$multiarch/libvulkan_lvp.so" ]; then
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends mesa-vulkan-drivers libvulkan1; } >&2 ||
      fail "Mesa's software driver is not installed"
  fi
  use_driver libvulkan_lvp.so
  unlock
  exec "$@"
}

run_on_swiftshader() {
  local root=$cache/chromium
  lock
  if [ ! -e "$root/.complete" ]; then
    mkdir -p "$root"
    (cd "$root" && apt-get -qq download chromium-common && dpkg -x chromium-common_*.deb . &&
      rm chromium-common_*.deb && touch .complete) >&2 || fail "SwiftShader could not be fetched"
  fi
  use_driver "$root/usr/lib/chromium/libvk_swiftshader.so"
  unlock
  exec "$@"
}

run_on_new_lavapipe() {
  local root=$cache/sid program=$1
  shift
  lock
  [ -e "$root/.complete" ] ||
    fetch_suite "$root" sid mesa-vulkan-drivers libvulkan1 libc6 bash coreutils spirv-tools
  use_driver "$root/usr/lib/$multiarch/libvulkan_lvp.so"
  unlock
  case $program in
    */*) ;;
    *) if [ -x "$root/usr/bin/$program" ]; then program=$root/usr/bin/$program; else program=$(command -v "$program"); fi ;;
  esac
  set -- "$program" "$@"
  local loader=$root/lib64/ld-linux-x86-64.so.2
  [ -e "$loader" ] || loader=$root/lib/ld-linux-aarch64.so.1
  exec "$loader" --library-path "$root/usr/lib/$multiarch" "$@"
}

case $driver in
  lavapipe) run_on_lavapipe "$@" ;;
  swiftshader) run_on_swiftshader "$@" ;;
  lavapipe-new) run_on_new_lavapipe "$@" ;;
  *) fail "unknown driver $driver (lavapipe, lavapipe-new, swiftshader)" ;;
esac
