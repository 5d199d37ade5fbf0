# find_package(parbake 0.1 CONFIG REQUIRED) gives the target parbake::parbake: the shared library and parbake.h.
#
# With the Python package: -DCMAKE_PREFIX_PATH=$(python -c "import parbake; print(parbake.__path__[0])"). In a checkout,
# after `cargo build --release -p parbake-ffi`: -Dparbake_DIR=<checkout>/wheels/cmake; PARBAKE_PROFILE may be `debug`.

# Nothing here is an absolute path: the folders may be moved.
get_filename_component(_parbake_here "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(_parbake_prefix "${_parbake_here}/.." ABSOLUTE)

if(EXISTS "${_parbake_prefix}/libparbake.so")
  # The layout of the package: libparbake.so, include/, cmake/.
  set(_parbake_library "${_parbake_prefix}/libparbake.so")
  set(_parbake_include "${_parbake_prefix}/include")
else()
  # A checkout: wheels/cmake/, generated-manifest/, target/.
  get_filename_component(_parbake_root "${_parbake_here}/../.." ABSOLUTE)
  set(_parbake_include "${_parbake_root}/generated-manifest")
  set(_parbake_target "${_parbake_root}/target")
  if(DEFINED ENV{CARGO_TARGET_DIR})
    set(_parbake_target "$ENV{CARGO_TARGET_DIR}")
  endif()
  set(_parbake_profiles release debug)
  if(PARBAKE_PROFILE)
    set(_parbake_profiles ${PARBAKE_PROFILE})
  endif()
  set(_parbake_library "")
  foreach(_parbake_profile IN LISTS _parbake_profiles)
    set(_parbake_candidate "${_parbake_target}/${_parbake_profile}/libparbake_ffi.so")
    if(NOT _parbake_library AND EXISTS "${_parbake_candidate}")
      set(_parbake_library "${_parbake_candidate}")
    endif()
  endforeach()
endif()

if(NOT _parbake_library OR NOT EXISTS "${_parbake_include}/parbake.h")
  set(parbake_FOUND FALSE)
  set(parbake_NOT_FOUND_MESSAGE
      "there is no shared library, or no parbake.h, beside ${CMAKE_CURRENT_LIST_DIR}; in a checkout: cargo build --release -p parbake-ffi")
  return()
endif()

if(NOT TARGET parbake::parbake)
  add_library(parbake::parbake SHARED IMPORTED)
  # Without a name of its own in it, a program finds it by its file's name.
  set_target_properties(parbake::parbake PROPERTIES
    IMPORTED_LOCATION "${_parbake_library}"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_parbake_include}")
endif()

set(parbake_FOUND TRUE)
