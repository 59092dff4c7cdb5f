"""Tests in behaviour sentences, and the judge of finished runs."""
