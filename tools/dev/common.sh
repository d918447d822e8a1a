# Functions of every command: messages, the number of jobs, and the nearest name.

jobs=${JOBS:-$(nproc)}

say() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }
die() { printf 'dev: %s\n' "$*" >&2; exit 1; }

# nearest WORD CANDIDATE...: prints "; did you mean 'X'?" with the candidate that shares the most letters, or nothing.
nearest() {
  local word=$1 best='' most=0 candidate shared letters i
  shift
  for candidate in "$@"; do
    shared=0 letters=$candidate
    for ((i = 0; i < ${#word}; ++i)); do
      [[ $letters == *"${word:i:1}"* ]] || continue
      letters=${letters/"${word:i:1}"/} shared=$((shared + 2))
    done
    shared=$((shared - ${#letters}))
    ((shared > most)) && best=$candidate most=$shared
  done
  ((most < ${#word})) || printf "; did you mean '%s'?" "$best"
}
quietly() { "$@" >/dev/null 2>&1; }
