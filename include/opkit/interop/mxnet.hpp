// Lets Library::Load load the libraries that were compiled for MXNet's extension interface
// (lib_api.h), as they are: operators, partitioners and passes. One unit of the program includes
// this header, or the program links opkit::mxnet. The definitions need nlohmann/json.
//
//   #include <opkit/interop/mxnet.hpp>
//   Library library = Library::Load("libgemm_lib.so");  // built by MXNet's own Makefile
//   std::vector<Tensor> c = Invoke("my_gemm", {a, b});
//
// Libraries of MXNet 1.8 and 1.9, of its branch v1.x and of its master branch load (versions 10 and
// 11 of the interface). docs/from-mxnet.md describes what their parts become here.
#ifndef OPKIT_INTEROP_MXNET_HPP_
#define OPKIT_INTEROP_MXNET_HPP_

#include "opkit/plugin/library.hpp"
#include "opkit/plugin/load/library_adapter.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The adapter for MXNet's libraries: null for a file that is not one. Throws kUnsupported for
// another version of the interface, kInvalidArgument for a library that lacks a function or
// describes itself wrongly, and kOperatorFailed if its initialize fails.
IntrusivePtr<AdaptedLibrary> AdaptMxnetLibrary(SharedObject& file, const std::string& name);

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/interop/impl/mxnet.ipp"
#endif

#endif  // OPKIT_INTEROP_MXNET_HPP_
