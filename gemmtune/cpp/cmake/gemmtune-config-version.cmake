# What find_package(gemmtune 0.1) compares: before 1.0 a program that asks for 0.1 takes 0.1.x from the x on that it names.
set(PACKAGE_VERSION "0.1.0")
if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" gemmtune_minor "${PACKAGE_VERSION}")
if(gemmtune_minor VERSION_EQUAL "${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}"
   AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
unset(gemmtune_minor)
