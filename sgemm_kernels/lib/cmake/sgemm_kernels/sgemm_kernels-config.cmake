# Defines the target sgemm_kernels::sgemm_kernels.
get_filename_component(_sgemm_kernels_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET sgemm_kernels::sgemm_kernels)
  add_library(sgemm_kernels::sgemm_kernels SHARED IMPORTED)
  set_target_properties(
    sgemm_kernels::sgemm_kernels
    PROPERTIES IMPORTED_LOCATION "${_sgemm_kernels_root}/lib/libsgemm_kernels.so"
               IMPORTED_SONAME libsgemm_kernels.so
               INTERFACE_INCLUDE_DIRECTORIES "${_sgemm_kernels_root}/include")
endif()
unset(_sgemm_kernels_root)
