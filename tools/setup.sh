#!/usr/bin/env bash
# Installs what lastflop needs to build and run on Debian 12 or Ubuntu 24.04, by package name.
# Does nothing, fast, when everything is there.
#
#   tools/setup.sh          what `make run` and `make test` need
#   tools/setup.sh --ci     also the formatter and the linter that .ci/run uses
#   LASTFLOP_CUDA=on tools/setup.sh
#                           also the CUDA toolkit, from Python wheels into .venv, where there is no
#                           nvcc, and NCCL's header where there is none
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  make g++ cmake ninja-build ccache git python3 python3-jsonschema
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev libre2-dev
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libsqlite3-dev sqlite3
  libgtest-dev libgmock-dev libbenchmark-dev libjs-vega
)
# The versions that experiments/ was measured with; requirements for the wheels of the toolkit.
toolkit_wheel='cuda-toolkit[nvcc,cudart,cccl,cublas,cupti,nvtx,nvml]==13.0.*'
nccl_wheel='nvidia-nccl-cu13'

case "${1:-}" in
  "") ;;
  --ci)
    clang=$(cat tools/clang-version)
    packages+=("clang-format-$clang" "clang-tidy-$clang")
    ;;
  *)
    echo "usage: tools/setup.sh [--ci]" >&2
    exit 2
    ;;
esac

# apt-get as root, or through sudo when we are not.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup: not root and no sudo; as root, run: $*" >&2
    exit 1
  fi
}

install_packages() {
  command -v dpkg-query >/dev/null || {
    echo "setup: this script knows Debian and Ubuntu only; install the like of: ${packages[*]}" >&2
    exit 1
  }
  local installed missing=() package
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    sed -n 's/ installed$//p' || true)
  for package in "${packages[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "setup: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -q >&2
  as_root apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}

has_nvcc() {
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    compgen -G '.venv/lib/python3*/site-packages/nvidia/cu*/bin/nvcc' >/dev/null
}

has_nccl() {
  [ -f /usr/include/nccl.h ] || [ -f /usr/local/cuda/include/nccl.h ] ||
    compgen -G '.venv/lib/python3*/site-packages/nvidia/nccl/include/nccl.h' >/dev/null
}

install_cuda() {
  local wheels=()
  has_nvcc || wheels+=("$toolkit_wheel")
  has_nccl || wheels+=("$nccl_wheel")
  [ ${#wheels[@]} -eq 0 ] && return
  echo "setup: installing into .venv: ${wheels[*]}" >&2
  packages=(python3-venv)
  install_packages
  /usr/bin/python3 -m venv .venv
  .venv/bin/pip install --quiet "${wheels[@]}"
  # The names that nvcc's profile and CMake look for, and the wheels leave out.
  local root
  for root in $(compgen -G '.venv/lib/python3*/site-packages/nvidia/cu*'); do
    ln -sfn lib "$root/lib64"
    (cd "$root/lib" && ln -sf libcudart.so.* libcudart.so)
  done
}

install_packages
if [ "${LASTFLOP_CUDA:-auto}" = on ]; then
  install_cuda
fi
