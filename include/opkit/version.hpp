// The toolkit's version, and the inline namespace made of it: objects compiled against two versions
// share no symbol, so their layouts never mix. Every header opens
// `namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {`.
#ifndef OPKIT_VERSION_HPP_
#define OPKIT_VERSION_HPP_

#define OPKIT_VERSION_MAJOR 0
#define OPKIT_VERSION_MINOR 1
#define OPKIT_VERSION_PATCH 0
#define OPKIT_VERSION_STRING "0.1.0"

// Changes whenever a type's layout or the meaning of an inline function changes. The two ways to
// consume the toolkit (config.hpp) are two namespaces, so that objects of both never share a type.
#if defined(OPKIT_COMPILED) || defined(OPKIT_IMPLEMENTATION)
#define OPKIT_INLINE_NAMESPACE v0_1_compiled
#else
#define OPKIT_INLINE_NAMESPACE v0_1
#endif

#endif  // OPKIT_VERSION_HPP_
