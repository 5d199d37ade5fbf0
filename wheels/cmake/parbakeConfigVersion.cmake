# The version is that of the header beside this file; what was asked for must be of the same caret range: below 1.0 the
# same minor version, from then on the same major one.

set(PACKAGE_VERSION_COMPATIBLE FALSE)
set(PACKAGE_VERSION_EXACT FALSE)
foreach(_parbake_header "${CMAKE_CURRENT_LIST_DIR}/../include/parbake.h"
                        "${CMAKE_CURRENT_LIST_DIR}/../../generated-manifest/parbake.h")
  if(NOT PACKAGE_VERSION AND EXISTS "${_parbake_header}")
    file(STRINGS "${_parbake_header}" _parbake_line REGEX "^#define PARBAKE_VERSION \"")
    string(REGEX REPLACE "^#define PARBAKE_VERSION \"(.*)\"$" "\\1" PACKAGE_VERSION "${_parbake_line}")
  endif()
endforeach()

if(PACKAGE_VERSION MATCHES "^0\\.([0-9]+)")
  set(_parbake_range "0.${CMAKE_MATCH_1}")
  set(_parbake_asked "${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}")
elseif(PACKAGE_VERSION MATCHES "^([0-9]+)")
  set(_parbake_range "${CMAKE_MATCH_1}")
  set(_parbake_asked "${PACKAGE_FIND_VERSION_MAJOR}")
endif()
if(NOT PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
elseif(_parbake_range STREQUAL "${_parbake_asked}" AND NOT PACKAGE_VERSION VERSION_LESS "${PACKAGE_FIND_VERSION}")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
if(PACKAGE_VERSION VERSION_EQUAL "${PACKAGE_FIND_VERSION}")
  set(PACKAGE_VERSION_EXACT TRUE)
endif()

# One build for 64-bit systems.
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION "${PACKAGE_VERSION} (64 bit)")
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
