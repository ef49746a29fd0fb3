#!/bin/bash
# with-gpu.sh DEVICE PROGRAM ARGS...    runs PROGRAM (an ELF file) on a GPU that is not there: the real Vulkan driver of Mesa with
# its real compiler, and a preloaded shim that answers what the driver asks the kernel. Pipelines compile for real; dispatches
# return at once and compute nothing.
#
#   AMD (RADV): navi31 navi21 gfx1150   Intel (ANV): dg2 bmg lnl   NVIDIA (NVK): turing ampere ada blackwell
#
# The driver is fetched on first use and kept in ${WEFT_DRIVERS:-$HOME/.cache/weft-drivers}, as with-driver.sh does. The shims
# come from Mesa's sources and lie in the folder that WEFT_GPU_SHIMS names.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage="usage: with-gpu.sh DEVICE PROGRAM ARGS..."
device=${1:?$usage}
shift
[ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }

if [ -z "${WEFT_GPU_SHIMS:-}" ]; then
  cat >&2 <<STEPS
with-gpu: WEFT_GPU_SHIMS names no folder with the built shims. To build them from Mesa's sources:
  curl -LO https://archive.mesa3d.org/mesa-25.0.7.tar.xz && tar xf mesa-25.0.7.tar.xz && cd mesa-25.0.7
  patch -p1 < $here/shims/mesa-25.0.7.patch
  meson setup build -Dtools=drm-shim -Dvulkan-drivers=amd,intel,nouveau -Dgallium-drivers= -Dplatforms= -Dglx=disabled -Degl=disabled -Dopengl=false -Dgbm=disabled
  ninja -C build src/amd/drm-shim/libamdgpu_noop_drm_shim.so src/intel/tools/libintel_noop_drm_shim.so src/nouveau/drm-shim/libnouveau_noop_drm_shim.so
  mkdir -p ~/weft-gpu-shims && find build -name 'lib*_noop_drm_shim.so' -exec cp {} ~/weft-gpu-shims \\;
  export WEFT_GPU_SHIMS=~/weft-gpu-shims
STEPS
  exit 2
fi
case $device in
  dg2|bmg|lnl) vendor=intel icd=intel; export INTEL_STUB_GPU_PLATFORM=$device ;;
  turing) chipset=164 ;;
  ampere) chipset=172 ;;
  ada) chipset=192 ;;
  blackwell) chipset=1b2 ;;
  navi31|navi21|gfx1150) vendor=amdgpu icd=radeon; export AMDGPU_GPU_ID=$device ;;
  *) echo "with-gpu: unknown device $device (navi31 navi21 gfx1150 dg2 bmg lnl turing ampere ada blackwell)" >&2; exit 2 ;;
esac
if [ -n "${chipset:-}" ]; then
  vendor=nouveau icd=nouveau
  export NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1 NOUVEAU_CHIPSET=$chipset
fi
shim=$WEFT_GPU_SHIMS/lib${vendor}_noop_drm_shim.so
[ -e "$shim" ] || { echo "with-gpu: $shim is not there (unset WEFT_GPU_SHIMS to see how it is built)" >&2; exit 2; }

cache=${WEFT_DRIVERS:-$HOME/.cache/weft-drivers}
root=$cache/sid
[ -e "$root/.complete" ] || "$here/../with-driver.sh" lavapipe-new true >&2
libs=$root/usr/lib/$(uname -m)-linux-gnu
manifest=$cache/icd-$icd.json
printf '{"file_format_version":"1.0.0","ICD":{"library_path":"%s","api_version":"1.4.0"}}\n' "$libs/libvulkan_$icd.so" > "$manifest"
export VK_DRIVER_FILES=$manifest VK_ICD_FILENAMES=$manifest
system=/lib/$(uname -m)-linux-gnu:/usr/lib/$(uname -m)-linux-gnu
exec "$root/lib64/ld-linux-x86-64.so.2" --preload "$shim" --library-path "$libs:$system" "$@"
