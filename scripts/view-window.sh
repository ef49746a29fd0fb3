#!/bin/bash
# Opens the viewer's window on a trace under a virtual display, drives it with keys and the mouse as a reader would, and writes a
# picture after each step.
#
#     scripts/view-window.sh WEFT F.trace FOLDER [WIDTHxHEIGHT]
#
# CLICK is where a box stands when the top of the graph is shown, in hundredths of width and height (default "42 18").
# WEFT is the command built with `--features view`. Needs Xvfb, xdotool and ImageMagick (Debian: xvfb xdotool imagemagick), and a
# Vulkan driver, in software too. It fails when the window does not open, does not answer a key with another picture, or
# writes to stderr, and when it is gone at the end.
set -euo pipefail

usage="usage: view-window.sh WEFT F.trace FOLDER [WIDTHxHEIGHT]"
weft=${1:?$usage}
trace=${2:?$usage}
folder=${3:?$usage}
size=${4:-1400x900}
for tool in Xvfb xdotool import; do
  command -v "$tool" > /dev/null || { echo "view-window: $tool is not here: apt-get install xvfb xdotool imagemagick" >&2; exit 2; }
done
mkdir -p "$folder"
log=$folder/stderr.txt

# The X server takes a free number and writes it to a pipe.
exec 3< <(exec Xvfb -displayfd 1 -screen 0 "${size}x24" -nolisten tcp 2> /dev/null)
server=$!
read -r number <&3
export DISPLAY=:$number
trap 'kill $(jobs -p) $server 2> /dev/null || true' EXIT

"$weft" view "$trace" --size "$size" 2> "$log" &
viewer=$!
window=$(timeout 60 xdotool search --sync --onlyvisible --name '^Weft: ' | head -1)
[ -n "$window" ] || { echo "view-window: no window after a minute: $(cat "$log")" >&2; exit 1; }
xdotool windowmove "$window" 0 0 windowfocus "$window"

last=
failed=0
# shot NAME: waits until the picture stands still, keeps it, and says when it is the one before.
shot() {
  local file=$folder/$1.png digest before=
  for _ in $(seq 60); do
    sleep 0.5
    import -silent -window root "$file"
    digest=$(convert "$file" rgb:- | sha256sum)
    [ "$digest" = "$before" ] && break
    before=$digest
  done
  if [ "$digest" = "$last" ]; then
    echo "view-window: $1 looks as the step before it" >&2
    failed=1
  fi
  last=$digest
}
keys() { xdotool key --window "$window" --delay 60 "$@"; }
# click SHARE_OF_WIDTH SHARE_OF_HEIGHT, in hundredths.
click() {
  xdotool mousemove $((${size%x*} * $1 / 100)) $((${size#*x} * $2 / 100)) sleep 0.3 click 1
}

shot 01-opened
keys b;            shot 02-before-and-after
keys n n;          shot 03-next-change
keys b;            shot 04-after-alone
keys 2;            shot 05-kernel
keys 3;            shot 06-text
keys 4;            shot 07-groups
keys 5;            shot 08-time
keys 6;            shot 09-memory
keys 7;            shot 10-precision
keys 8;            shot 11-remarks
keys 1 c;          shot 12-columns
keys c ctrl+k;     shot 13-from-left-to-right
keys ctrl+k ctrl+f
sleep 1
xdotool type --window "$window" --delay 60 'kind:contraction'
keys Return;       shot 14-search
keys Escape Escape Escape t; shot 15-top
click ${CLICK:-42 18};       shot 16-click
keys o;            shot 17-opened-in-place
keys Left;         shot 18-pass-before
keys ctrl+d ctrl+i; shot 19-attributes
keys f question;   shot 20-keys

kill -0 "$viewer" 2> /dev/null || { echo "view-window: the window is gone: $(cat "$log")" >&2; exit 1; }
kill "$viewer"
# A driver may warn of itself; what Weft says is an error.
if grep -E 'error:|panicked|warning: weft' "$log" >&2; then failed=1; fi
exit $failed
