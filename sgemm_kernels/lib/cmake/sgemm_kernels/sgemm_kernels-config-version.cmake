set(PACKAGE_VERSION "0.2.0")
# Before version 1, each minor version may change the interface.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _sgemm_kernels_wanted "${PACKAGE_FIND_VERSION}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _sgemm_kernels_found "${PACKAGE_VERSION}")
if(_sgemm_kernels_wanted STREQUAL _sgemm_kernels_found
   AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
unset(_sgemm_kernels_wanted)
unset(_sgemm_kernels_found)
