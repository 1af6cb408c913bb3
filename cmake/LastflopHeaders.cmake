# The target lastflop_headers: every header of ours compiles alone. x.h that has a x.cc has been
# shown to by it, as x.cc includes it first (tools/check_layers.py). Each of the others is included
# by a file of its own, which is parsed and never turned into code.
function(lastflop_add_headers_target)
  # kernels/cpu/vector.h is for files that are compiled for AVX2.
  set(vector_flags)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(vector_flags -mavx2 -mfma -mf16c -Wno-ignored-attributes)
  endif()
  set(stamps)
  foreach(room IN LISTS LASTFLOP_ROOMS)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
         ${CMAKE_SOURCE_DIR}/${room}/*.h)
    foreach(header IN LISTS headers)
      # These include the CUDA toolkit; nvcc reads them with the .cu that they belong to.
      if(header MATCHES "^gpu/|_launch\\.h$|_cuda\\.h$|/cuda_[^/]*\\.h$")
        continue()
      endif()
      cmake_path(REPLACE_EXTENSION header LAST_ONLY .cc OUTPUT_VARIABLE source)
      if(EXISTS ${CMAKE_SOURCE_DIR}/${source})
        continue()
      endif()
      set(unit ${CMAKE_BINARY_DIR}/headers/${header}.cc)
      file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
      add_custom_command(
        OUTPUT ${unit}.stamp
        COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 ${LASTFLOP_WARNING_FLAGS} ${vector_flags} -fsyntax-only
                -MD -MT ${unit}.stamp -MF ${unit}.d -I${CMAKE_SOURCE_DIR}
                -isystem ${CMAKE_BINARY_DIR}/proto/gen ${unit}
        COMMAND ${CMAKE_COMMAND} -E touch ${unit}.stamp
        DEPENDS ${unit} DEPFILE ${unit}.d
        COMMENT "${header} compiles alone"
        VERBATIM)
      list(APPEND stamps ${unit}.stamp)
    endforeach()
  endforeach()
  add_custom_target(lastflop_headers DEPENDS ${stamps})
  add_dependencies(lastflop_headers lastflop_proto)
endfunction()
