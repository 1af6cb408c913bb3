# The CUDA backend: LASTFLOP_CUDA=auto builds it where nvcc is found, on insists, off leaves it out.
# Sets LASTFLOP_HAS_CUDA and, when it is on, declares lastflop_add_cuda_library.

set(LASTFLOP_HAS_CUDA OFF)
if(NOT LASTFLOP_CUDA MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "LASTFLOP_CUDA=${LASTFLOP_CUDA}: auto, on or off")
endif()
if(NOT LASTFLOP_CUDA STREQUAL "off")
  # A wheel of the toolkit puts nvcc under .venv (tools/setup.sh).
  file(GLOB LASTFLOP_WHEEL_BIN
       ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu*/bin)
  find_program(LASTFLOP_NVCC nvcc
               PATHS /usr/local/cuda/bin ${LASTFLOP_WHEEL_BIN} /usr/local/bin
               NO_DEFAULT_PATH)
  find_program(LASTFLOP_NVCC nvcc)
  if(LASTFLOP_NVCC)
    set(LASTFLOP_HAS_CUDA ON)
  elseif(LASTFLOP_CUDA STREQUAL "on")
    message(FATAL_ERROR "LASTFLOP_CUDA=on, and there is no nvcc: LASTFLOP_CUDA=on tools/setup.sh "
                        "installs the toolkit from Python wheels")
  elseif(EXISTS /dev/nvidia0)
    message(WARNING "This machine has a GPU and no nvcc: lastflop is built WITHOUT its CUDA "
                    "backend and will rank CPU kernels only. LASTFLOP_CUDA=on tools/setup.sh "
                    "installs the toolkit; then configure again with -DLASTFLOP_CUDA=on.")
  endif()
endif()

set(LASTFLOP_CUDA_DEV_ARCHITECTURES "" CACHE STRING
    "While developing: build kernels for these of their architectures only, e.g. 90a")

if(LASTFLOP_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER ${LASTFLOP_NVCC} CACHE FILEPATH "nvcc")
  # Every library names its architectures itself, as -gencode, below.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  # CMake 3.25 does not know C++20 of nvcc 13.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)

  # "80;90a;100f;120f" as nvcc's flags: machine code for each, and no PTX. wgmma and setmaxnreg
  # need 90a; block-scaled MMA and tcgen05 need the family targets 100f and 120f.
  function(lastflop_gencode_flags out)
    set(flags)
    foreach(architecture IN LISTS ARGN)
      list(APPEND flags "-gencode=arch=compute_${architecture},code=sm_${architecture}")
    endforeach()
    set(${out} "${flags}" PARENT_SCOPE)
  endfunction()
endif()

# lastflop_gencode_flags_of(OUT [80 90a ...]): for these architectures; for all four where none is
# named, for a developer's alone where there are such.
function(lastflop_gencode_flags_of out)
  set(architectures ${ARGN})
  if(NOT architectures)
    set(architectures 80 90a 100f 120f)
  endif()
  if(LASTFLOP_CUDA_DEV_ARCHITECTURES)
    set(architectures ${LASTFLOP_CUDA_DEV_ARCHITECTURES})
  endif()
  lastflop_gencode_flags(flags ${architectures})
  set(${out} "${flags}" PARENT_SCOPE)
endfunction()

# lastflop_add_cuda_library(NAME SOURCES a.cu b.cc ... [DEPS lib ...] [PRIVATE_DEPS lib ...]
#                           [ARCHITECTURES 80 90a 100f 120f])
# As lastflop_add_library, for device code: one static library lastflop::NAME, built for all four
# architectures unless the kernel lists its own. Only where LASTFLOP_HAS_CUDA.
function(lastflop_add_cuda_library name)
  if(NOT LASTFLOP_HAS_CUDA)
    message(FATAL_ERROR "lastflop_add_cuda_library(${name}): guard it with LASTFLOP_HAS_CUDA")
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS;ARCHITECTURES" ${ARGN})
  lastflop_gencode_flags_of(gencode ${ARG_ARCHITECTURES})
  lastflop_add_library(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} CUDA::cudart_static
                       PRIVATE_DEPS ${ARG_PRIVATE_DEPS})
  set_target_properties(lastflop_${name} PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(lastflop_${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:${gencode} -lineinfo --compress-mode=size --expt-relaxed-constexpr
                               -Xcompiler=-Wall,-Wextra -diag-suppress=20012>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LASTFLOP_WERROR}>>:-Werror=all-warnings>)
endfunction()

# lastflop_add_cuda_plugin(NAME SOURCES a.cu [ARCHITECTURES 80 90a 100f 120f]): plugins/NAME.so of
# the build, as a user's nvcc makes it: with a CUDA runtime of its own.
function(lastflop_add_cuda_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ARCHITECTURES" ${ARGN})
  lastflop_gencode_flags_of(gencode ${ARG_ARCHITECTURES})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/plugin)
  target_link_libraries(${name} PRIVATE CUDA::cudart_static)
  target_compile_options(${name} PRIVATE ${gencode} -Xcompiler=-Wall,-Wextra)
  set_target_properties(${name} PROPERTIES PREFIX "" CUDA_ARCHITECTURES OFF
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
endfunction()
