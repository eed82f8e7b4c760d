-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
CREATE TABLE `subscriber` (
  `id` int unsigned NOT NULL AUTO_INCREMENT,
  `username` char(64) NOT NULL DEFAULT '',
  `domain` char(64) NOT NULL DEFAULT '',
  `password` char(25) NOT NULL DEFAULT '',
  `ha1` char(64) NOT NULL DEFAULT '',
  `ha1_sha256` char(64) NOT NULL DEFAULT '',
  `ha1_sha512t256` char(64) NOT NULL DEFAULT '',
  PRIMARY KEY (`id`)
);
INSERT INTO `subscriber` VALUES (1,'102','example.org','','8312c55030fd44b0219c26fa18667f6e','1ad0bf6f10fd4cb6fd5d4fa7d28b6ccc6d6b3a2a5f4e4f5ed0a0c6a1f6f5d6a4','2bd0bf6f10fd4cb6fd5d4fa7d28b6ccc6d6b3a2a5f4e4f5ed0a0c6a1f6f5d6a4');
INSERT INTO `subscriber` VALUES (2,'testing','','','',MD5('testing:192.168.52.1:secret'),'');
