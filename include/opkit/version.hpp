// Version of the toolkit and the inline namespace made of it, so that objects compiled against two
// versions link as strangers instead of mixing layouts. Every header opens
// `namespace opkit::inline OPKIT_ABI {`.
#ifndef OPKIT_VERSION_HPP_
#define OPKIT_VERSION_HPP_

#define OPKIT_VERSION_MAJOR 0
#define OPKIT_VERSION_MINOR 1
#define OPKIT_VERSION_PATCH 0
#define OPKIT_VERSION_STRING "0.1.0"

// Changes whenever a type's layout or the meaning of an inline function changes.
#define OPKIT_ABI v0_1

#endif  // OPKIT_VERSION_HPP_
