# find_package(gemmtune) gives gemmtune::gemmtune, headers on the CUDA driver API, and, where the toolkit has cuBLASLt,
# gemmtune::cublaslt for gemmtune/cublaslt.hpp.
# cmake -Dgemmtune_DIR=$(python -c "import gemmtune, pathlib; print(pathlib.Path(gemmtune.__file__).parent / 'cpp/cmake')")
include(CMakeFindDependencyMacro)
find_dependency(CUDAToolkit)
# A toolkit from a package manager may come without the stub of libcuda, and without a driver there is no other one.
if(NOT TARGET CUDA::cuda_driver)
  set(gemmtune_FOUND FALSE)
  set(gemmtune_NOT_FOUND_MESSAGE
    "CUDA's toolkit is here without libcuda.so: install the driver, or the toolkit's stubs, as in lib64/stubs.")
  return()
endif()
if(NOT TARGET gemmtune::gemmtune)
  add_library(gemmtune::gemmtune INTERFACE IMPORTED)
  set_target_properties(gemmtune::gemmtune PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/../include"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_LINK_LIBRARIES CUDA::cuda_driver)
endif()
if(TARGET CUDA::cublasLt AND NOT TARGET gemmtune::cublaslt)
  add_library(gemmtune::cublaslt INTERFACE IMPORTED)
  set_target_properties(gemmtune::cublaslt PROPERTIES
    INTERFACE_LINK_LIBRARIES "gemmtune::gemmtune;CUDA::cublasLt")
endif()
