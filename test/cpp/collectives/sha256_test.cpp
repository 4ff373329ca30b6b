// The hash of the ranks' proofs, against published vectors and, for every length up to a few
// blocks, Python's hashlib and hmac.
#include "start/sha256.hpp"

#include <gtest/gtest.h>

namespace tensoropt {
namespace {

// FIPS 180-4's examples, and a million times the letter a.
TEST(Sha256, PublishedDigests) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, test cases 1 to 4, 6 and 7; the last two have keys longer than a block. Case 5 is for
// truncated codes.
TEST(Sha256, PublishedCodes) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hex(hmac_sha256("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11"
                            "\x12\x13\x14\x15\x16\x17\x18\x19",
                            std::string(50, '\xcd'))),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'),
                            "This is a test using a larger than block-size key and a larger than "
                            "block-size data. The key needs to be hashed before being used by the "
                            "HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

// Byte i of a message or key is i * factor + its number, mod 256.
std::string bytes_of(int size, int factor, int number) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += char((i * factor + number) % 256);
  return bytes;
}

// The expected values are hashlib's digest of all 300 digests, and of all 300 codes.
TEST(Sha256, EveryLengthUpToAFewBlocks) {
  std::string digests, codes;
  for (int n = 0; n < 300; ++n) {
    digests += sha256(bytes_of(n, 7, n));
    codes += hmac_sha256(bytes_of(n % 131, 5, n), bytes_of(n, 7, n));
  }
  EXPECT_EQ(hex(sha256(digests)),
            "d5238871a46ac4a1a75ac3fb19d645b0b3b9e5f35f5f720e2b240d605c6b694e");
  EXPECT_EQ(hex(sha256(codes)), "1f12048b12902117f29d85ced4663423612114e035c674752f8978c99d45bea9");
}

}  // namespace
}  // namespace tensoropt
