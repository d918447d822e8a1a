// Draws sentences as a camera might see them: ink on paper, slanted, in uneven light, blurred and
// noisy. So the demo and its test have pictures with known text, without a download.
#ifndef OPKIT_EXAMPLES_DEMO_RENDER_HPP_
#define OPKIT_EXAMPLES_DEMO_RENDER_HPP_

#include "picture.hpp"

namespace demo {

// Returns `count` English sentences of a few words; the same for the same seed.
std::vector<std::string> MakeSentences(uint64_t seed, int count);

// Draws one line of printable ASCII text in one of the DejaVu fonts (Debian's fonts-dejavu-core).
// Gives the same pixels for the same text and seed on every machine with the same font and
// stb_truetype. Throws opkit::Error for other characters, and if the font is not installed.
Picture RenderSentence(const std::string& text, uint64_t seed);

}  // namespace demo

#endif  // OPKIT_EXAMPLES_DEMO_RENDER_HPP_
