// BuildLibrary: compiles the source of an operator library when it is needed, and keeps the result
// for the next time. Library::Build (library.hpp) also loads it.
#ifndef OPKIT_PLUGIN_BUILD_HPP_
#define OPKIT_PLUGIN_BUILD_HPP_

#include <string>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// How a source is compiled. An empty text means the default.
struct BuildOptions {
  // More words for the compiler, behind the toolkit's own and the source: "-O3", "-Ifolder",
  // "-lfoo". A relative folder begins at the current directory.
  std::vector<std::string> flags = {};
  // The compiler, and words that come first ("ccache g++"). Default: $CXX, else c++; for a .c file
  // $CC, else cc; for a .cu file $NVCC, else nvcc.
  std::string compiler = {};
  // The folder that has opkit/op.hpp. Default: $OPKIT_INCLUDE_DIR; else include/ in the folder of
  // the program or shared object that contains this function, or in one of the two folders above;
  // else the folder with which that was compiled.
  std::string include_dir = {};
  // The folder of the results. Default: $OPKIT_BUILD_CACHE, else opkit/build in the user's cache
  // folder ($XDG_CACHE_HOME, else $HOME/.cache).
  std::string cache_dir = {};
  // Results of so many sources (of one source with different flags, too) stay in the folder. A
  // compilation removes the others, those that were used longest ago first.
  int keep = 100;
};

// True if the name ends as the name of a source that BuildLibrary compiles: .cc, .cpp, .cxx, .c,
// .cu.
bool IsLibrarySource(const std::string& path);

// Compiles a source to a shared object and returns the path of that, in the folder of the results.
// $CXXFLAGS ($CFLAGS, $NVCCFLAGS) come before BuildOptions::flags. The source is compiled again if
// its content, that of a header that it includes, the flags, the compiler's --version or the
// toolkit's version has changed. Otherwise the call takes about 1 ms: a file with the size and the
// times of the last call is not read. A new header that hides one of the same name is noticed in
// the folder of the source, in those of -I, -iquote and -isystem that existed, and in sub-folders.
//
// Processes and threads that need one result at the same time compile it once. A process that is
// killed leaves no lock and no half result. After a compilation the result of the last one of the
// same source and flags stays, and older ones are removed.
//
// Throws kInvalidArgument for a file that is no source, and for a source that does not compile: the
// first line of that message ends with the compiler's command, the compiler's text follows. Throws
// kNotFound for a missing compiler or opkit/op.hpp, kIo for a missing source and for a folder that
// cannot be written.
std::string BuildLibrary(const std::string& source, const BuildOptions& options = {});

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/plugin/impl/build.ipp"
#endif

#endif  // OPKIT_PLUGIN_BUILD_HPP_
